package canon

import "errors"

// ErrInvalid says that a text is not one JSON value.
var ErrInvalid = errors.New("canon: not one JSON value")
