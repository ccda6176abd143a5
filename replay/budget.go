package replay

import (
	"fmt"

	"sessiond/replay/dialect"
	"sessiond/replay/pages"
)

// BudgetError says that a message view needs more of a file than Options
// allow.
type BudgetError struct {
	View        dialect.View
	Unit        string // records or bytes
	Limit, Seen int64
}

// Error implements error.
func (e *BudgetError) Error() string {
	return fmt.Sprintf("replay: view %s is made of %d %s, over the limit of %d", e.View, e.Seen, e.Unit, e.Limit)
}

// Admit reports whether a message view at the head is within the limits of
// Options; a *BudgetError says that it is not. Who shows views asks first: the
// index itself goes on, and with it view records and the listing. A view that
// begins at a compaction needs what it retains and what follows, and no more.
func (r *Replay) Admit(v dialect.View) (err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	if r.session == nil || r.opt.MaxRecords <= 0 && r.opt.MaxBytes <= 0 {
		return nil
	}
	records, bytes := int64(r.head.Sequence), r.head.Offset
	if c, ok := r.session.Cutoff(v); ok {
		records -= int64(c.Sequence) - 1
		bytes -= c.Offset
	}
	switch {
	case r.opt.MaxRecords > 0 && records > r.opt.MaxRecords:
		return &BudgetError{v, "records", r.opt.MaxRecords, records}
	case r.opt.MaxBytes > 0 && bytes > r.opt.MaxBytes:
		return &BudgetError{v, "bytes", r.opt.MaxBytes, bytes}
	}
	return nil
}
