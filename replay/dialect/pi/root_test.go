package pi

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sessiond/replay/dialect"
	"sessiond/replay/jsonl"
	"sessiond/replay/pages"
)

// object is a line as a session gets it.
func object(line string, index, offset int64) dialect.Object {
	text := []byte(line)
	return dialect.Object{
		Sequence: uint64(index + 1), Offset: offset, Bytes: int64(len(text)), Index: index,
		Text: text, Scan: jsonl.NewScanner(Family{}.Keys(false)).Scan(text),
	}
}

// replayed is a session of some lines.
func replayed(t *testing.T, lines ...string) *Session {
	t.Helper()
	s := newSession(0, new(pages.Space))
	offset := int64(0)
	for i, line := range lines {
		if _, err := s.Add(new(object(line, int64(i), offset))); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		offset += int64(len(line)) + 1
	}
	s.Commit()
	return s
}

// Some writers give the session's own id as the parent of an entry that has
// none.
func TestParent_ThatIsTheSessionIsNone(t *testing.T) {
	const header = `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}`
	message := func(id, parent string) string {
		return fmt.Sprintf(`{"type":"message","id":%q,"parentId":%s,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"x"}}`, id, parent)
	}
	for _, row := range []struct {
		name, parent string
		gap          bool // before what stands behind an earlier entry
	}{
		{"null", `null`, false},
		{"the session", `"s1"`, false},
		{"the session, escaped", `"\u00731"`, false},
		{"nobody", `"s2"`, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := replayed(t, header, message("a", `null`), message("b", `"a"`), message("c", row.parent))
			var codes, want []jsonl.Code
			diagnostics, _ := s.Diagnostics()
			for _, d := range diagnostics {
				codes = append(codes, d.Code)
			}
			view, wantSlots := s.Slots(dialect.Transcript), []dialect.Slot{{Entry: 2}}
			slots := view.AppendTo(nil, 0, view.Len())
			if row.gap {
				want = []jsonl.Code{jsonl.CodeDanglingParent}
				wantSlots = []dialect.Slot{{Entry: 0}, {Entry: 1}, {Entry: 2, Part: partGap}, {Entry: 2}}
			}
			if diff := cmp.Diff(want, codes); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantSlots, slots); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
			first := replayed(t, header, message("a", row.parent))
			firstSlots := first.Slots(dialect.Transcript)
			if diagnostics, _ := first.Diagnostics(); (len(diagnostics) > 0) != row.gap || firstSlots.Len() != 1 {
				t.Errorf("first entry: got diagnostics %v, %d slots", diagnostics, firstSlots.Len())
			}
			// As the provisional tail it is shown as it will be.
			tail := object(message("c", row.parent), 3, 1000)
			p, ok := replayed(t, header, message("a", `null`), message("b", `"a"`)).Preview(dialect.Transcript, tail)
			if ok == row.gap || ok && p.Cut.Keep != 0 {
				t.Errorf("preview: got %+v, %v; want a root that keeps nothing, unless a gap", p, ok)
			}
		})
	}
}
