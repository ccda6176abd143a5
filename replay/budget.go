package replay

import (
	"fmt"

	"sessiond/replay/dialect"
	"sessiond/replay/pages"
	"sessiond/replay/stamp"
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

// Budget bounds what the messages of a view may be made of.
type Budget struct {
	view                 dialect.View
	maxRecords, maxBytes int64       // 0: no bound
	before               stamp.Point // of the records that the view needs; without a digest
}

// budgetLocked is the budget of a view that begins where it does at the head.
// One that begins at a compaction needs what that retains and what follows,
// and no more.
func (r *Replay) budgetLocked(v dialect.View) Budget {
	b := Budget{view: v, maxRecords: r.opt.MaxRecords, maxBytes: r.opt.MaxBytes}
	if r.session == nil || b.maxRecords <= 0 && b.maxBytes <= 0 {
		return Budget{view: v}
	}
	if c, ok := r.session.Cutoff(v); ok {
		b.before = stamp.Point{Sequence: c.Sequence - 1, Offset: c.Offset}
	}
	return b
}

// Over says that the view at a cut is over the budget, nil that it is not.
func (b Budget) Over(cut stamp.Point) *BudgetError { return b.Between(b.before, cut) }

// Between is Over for what the records between two places make.
func (b Budget) Between(from, to stamp.Point) *BudgetError {
	records, bytes := int64(to.Sequence)-int64(from.Sequence), to.Offset-from.Offset
	switch {
	case b.maxRecords > 0 && records > b.maxRecords:
		return &BudgetError{b.view, "records", b.maxRecords, records}
	case b.maxBytes > 0 && bytes > b.maxBytes:
		return &BudgetError{b.view, "bytes", b.maxBytes, bytes}
	}
	return nil
}

// First returns the first of a view's slots at a cut from which on they are
// made of what the budget allows: their number where not even the last is. It
// looks at no slot before that and one.
func (b Budget) First(cut stamp.Point, slots *dialect.Slots, bodies Bodies) (int, error) {
	i := int(slots.Len())
	for ; i > 0; i-- {
		_, body, err := bodies.BodyAt(slots, i-1, false)
		if err != nil {
			return 0, err
		}
		if b.Between(stamp.Point{Sequence: body.Sequence - 1, Offset: body.Object}, cut) != nil {
			break
		}
	}
	return i, nil
}

// Budget is the budget of a message view at the head.
func (r *Replay) Budget(v dialect.View) (b Budget, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	return r.budgetLocked(v), nil
}

// Admit reports whether a message view at the head is within the limits of
// Options; a *BudgetError says that it is not. Who shows views asks first: the
// index itself goes on, and with it view records and the listing.
func (r *Replay) Admit(v dialect.View) (err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	defer pages.Catch(&err)
	r.space.Check()
	if over := r.budgetLocked(v).Over(r.head); over != nil {
		return over
	}
	return nil
}
