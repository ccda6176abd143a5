// Package pages keeps lists whose memory is bounded: a list is held in pages,
// and pages that were not used lately wait in a file until they are. It is
// what the index of a session is made of, which may have more records than
// there is memory for.
//
// A Pool bounds the pages of a process and owns the file, which nobody else
// needs: it holds nothing that cannot be computed again. A Space has the lists
// of one owner. A List is a growing list of plain values, without pointers.
//
// # Concurrency
//
// The owner of a Space changes its lists by one goroutine at a time, between
// Lock and Unlock; Add, Mut and Cut belong there. At and Get may be called by
// any number of goroutines beside each other, and beside the owner for
// elements that it does not change: a copy of a List is its content at that
// time, and goes on to be, as long as the owner only adds and cuts.
//
// # Ownership
//
// A pointer that At returns is to be read until the next call. One of Mut may
// be written until the owner's next Relax or Unlock: a page that was changed
// does not leave memory before.
//
// # Errors
//
// A page that cannot be written stays in memory, and is tried again when more
// is held and when Pool.Relax is called. One that cannot be read again is lost,
// and with it the lists of its Space: At panics with a *LostError, which Catch
// turns into an error at the edge of the owner's code. The owner may have been
// in the middle of a change: who uses the lists afterwards calls Space.Check
// first. Copies are whole all the same.
package pages
