// Package term makes text of unknown origin safe to show on a terminal. Every
// text that comes from a session file, a path or another process passes
// through it before it is printed for a person.
//
// # Format
//
// Letters, marks, numbers, punctuation, symbols and spaces stay as they are.
// Everything else (control characters, ESC and DEL among them, bidirectional
// overrides, isolates and marks, line and paragraph separators, byte-order
// marks, private and unassigned code points) is shown as an escape in the
// spelling of Go: \n, \x1b, \u202e, \U000e0041. A byte that is no UTF-8 is
// shown as U+FFFD. A backslash stays one backslash: the text is for reading,
// not for reading back.
//
// In lines (Lines, Writer) LF stays and a tab becomes four spaces.
//
// # Concurrency
//
// Functions are pure. A Writer belongs to one goroutine.
//
// # Caveats
//
// Widths are those of common terminals: East Asian wide characters and emoji
// take two columns, combining marks none. Terminals differ on the rest, so
// Truncate is for tables that may be ragged, not for drawing.
package term
