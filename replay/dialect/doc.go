// Package dialect is the contract between replay, which reads a session file
// line by line, and the families of formats below this folder, which know
// what the lines mean.
//
// A Session is a dialect's understanding of one file. It takes the objects of
// the file in order, keeps an index without text, and describes message views
// as slots. A slot's message is read back from the file by the byte range
// that its Body names.
//
// # Views as deltas
//
// A view is a pure function of the bytes before a cut. What the objects after
// a cut do to it is always the same shape: of the slots held, the first Keep
// stand, some that stand are amended, and the slots from Keep on follow. So
// append, amend and rewind are one thing, and a reader that holds a view at
// any earlier sequence needs three calls: Keep, Amendments, Slots.
//
// # Concurrency
//
// A Session belongs to its replay: Add and Commit exclude everything else;
// the other methods may run side by side. Slices that Slots returns are never
// written again. Bodies stay good for the life of the replay.
//
// # A new dialect
//
// One folder below this one with a Family value, its tests, and its line in
// the table of replay.Families.
package dialect
