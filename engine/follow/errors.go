package follow

import "errors"

// Reasons for which a scan lists something and leaves it out.
var (
	// ErrOutside: a link leads out of the root.
	ErrOutside = errors.New("follow: link leads out of the root")
	// ErrFolderLink: a link to a folder, which is not followed.
	ErrFolderLink = errors.New("follow: link to a folder is not followed")
	// ErrDeep: a folder more than DepthMax below the root.
	ErrDeep = errors.New("follow: folder is too deep")
)

// Reasons for mode polling, besides errors of the operating system.
var (
	// ErrForced: an option asks for polling.
	ErrForced = errors.New("follow: polling by configuration")
	// ErrNoEvents: the platform or the file system gives no reliable events.
	ErrNoEvents = errors.New("follow: no reliable events here")
)
