// Package vfstest puts faults behind the file-system seam.
//
// FS wraps another vfs.FS, counts every operation, and lets rules decide what
// an operation does: fail, write only a part, or run a hook first - which is
// how a test places another program's write between two steps of the code
// under test, without a sleep.
//
// # Concurrency
//
// An FS may be used by any number of goroutines. Hooks run on the goroutine
// of the operation, outside the lock, so they may use the FS and may block.
package vfstest
