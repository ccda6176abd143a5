package engine

import (
	"errors"
	"slices"

	"sessiond/replay"
	"sessiond/wire"
)

// admit reports whether the stream's view is within the limits of views, which
// its client may go without; view records has none.
func (st *stream) admit() error {
	if st.view == wire.ViewRecords || st.bounded != "" {
		return nil
	}
	return st.g.replay.Admit(viewOf(st.view))
}

// bound leaves out of a view that is over a limit all but what the client
// accepts in its place; the error is a *replay.BudgetError where that is
// nothing.
func (st *stream) bound(v *snapshotView) error {
	over := v.budget.Over(v.cut)
	if over == nil {
		return nil
	}
	first := v.count
	switch st.bounded {
	case "":
		return over
	case wire.BoundedWindow:
		var err error
		if first, err = v.budget.First(v.cut, &v.slots, v.Bodies); err != nil {
			return err
		}
	}
	v.amended = slices.DeleteFunc(v.amended, func(a amendedBody) bool { return a.index < first })
	v.bounded = &wire.Bounded{Mode: st.bounded, First: first, Unit: over.Unit, Limit: over.Limit, Seen: over.Seen}
	return nil
}

// refuse ends a stream whose view has grown over a limit: a part of it would
// look like the whole. To the client it is a snapshot that begins and fails
// for good.
func (st *stream) refuse(over error) (wire.Frame, bool, error) {
	if budgetError(over) == nil { // it is not known how large the view is
		return wire.Frame{}, false, over
	}
	var w *wire.Error
	errors.As(toWire(over), &w)
	if st.snap == nil {
		head := st.g.replay.Head()
		st.snap = &snapshot{
			snapshotView: snapshotView{cut: head, replay: st.g.replay}, purpose: wire.PurposeResync,
		}
		st.snap.id = st.snapshotID(st.snap.snapshotView)
	}
	begin, _, err := st.snapshotBegin()
	if err != nil {
		return wire.Frame{}, false, err
	}
	failed, err := st.snapshotFailed(w)
	st.queue = append(st.queue, failed)
	st.leaveSnapshot()
	st.pass, st.removed = nil, true
	return begin, err == nil, err
}

// budgetError is the protocol's error for a view over a limit, nil for another.
func budgetError(err error) *wire.Error {
	var over *replay.BudgetError
	if !errors.As(err, &over) {
		return nil
	}
	return wire.Errorf(wire.CodeHistoryBudgetExceeded, "view %s is made of %d %s, and this daemon makes views of at most %d; view records has no limit",
		over.View, over.Seen, over.Unit, over.Limit).With("limit", over.Limit).With("seen", over.Seen).With("accepts", wire.BoundedModes)
}
