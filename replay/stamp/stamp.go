package stamp

import (
	"fmt"
	"time"
)

// Stamp is a file's identity and change metadata, as statx gives them. The
// zero Stamp is Missing: a session without a file yet.
type Stamp struct {
	Size      int64  // bytes
	MTimeNano int64  // nanoseconds since 1970
	CTimeNano int64  // nanoseconds since 1970
	Device    uint64 // major<<32 | minor
	Inode     uint64
}

// Missing is the stamp of a file that does not exist.
var Missing Stamp

// IsMissing reports whether the stamp stands for no file.
func (s Stamp) IsMissing() bool { return s == Missing }

// SameFile reports whether both stamps name one file by device and inode.
func (s Stamp) SameFile(t Stamp) bool {
	return !s.IsMissing() && s.Device == t.Device && s.Inode == t.Inode
}

// Settled is how long a file must have rested before an equal stamp proves
// equal content: an in-place writer moves the stamp before the bytes.
const Settled = time.Second

// TrustedAt reports whether content read at readAt is proven by this stamp
// being unchanged later: the last change was at least Settled before the read
// began. A ctime in the future proves nothing.
func (s Stamp) TrustedAt(readAt time.Time) bool {
	return !s.IsMissing() && readAt.UnixNano()-s.CTimeNano >= int64(Settled)
}

// String is for logs and error messages.
func (s Stamp) String() string {
	if s.IsMissing() {
		return "missing"
	}
	return fmt.Sprintf("size %d, inode %d:%d, ctime %s", s.Size, s.Device, s.Inode,
		time.Unix(0, s.CTimeNano).UTC().Format(time.RFC3339Nano))
}
