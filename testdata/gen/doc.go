// Package gen makes pi sessions (version 3) and event logs for tests and
// measurements.
//
// A session is a pure function of its options, and one with more bytes starts
// with the bytes of one with fewer: to grow a session, make a longer one and
// append what is new. The lines repeat turns: a user's text, a tool call, its
// result and an answer, with the escapes and the non-ASCII text that real
// sessions have. Every line is valid, ends in LF and is an entry of the tree.
//
// Profile Brief has lines of about 1.7 KB, most of it text; profile Small has
// lines of about 200 bytes, most of it structure. Profile Log is an event log
// of much the same turns. WriteHuge makes a sparse file of several GB with one
// huge line and one run of NULs.
//
// Functions may be called from any goroutine; a slice that Lines yields is
// good until the next one.
package gen
