package pages

import "fmt"

// LostError says that a page could not be read again. The lists of its Space
// are of no use any more; what they were made of is.
type LostError struct {
	Offset int64 // in the pool's file
	Err    error
}

// Error implements error.
func (e *LostError) Error() string {
	return fmt.Sprintf("pages: page at offset %d of the paging file is lost: %v", e.Offset, e.Err)
}

// Unwrap returns why.
func (e *LostError) Unwrap() error { return e.Err }

// Catch is deferred where lists are used: it turns the panic of a lost page
// into *err and lets every other one pass.
func Catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case *LostError:
		*err = p
	default:
		panic(p)
	}
}
