package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"sessiond/wire"
)

// refOf finds the one ref among slots.
func refOf(t *testing.T, slots []string) wire.Ref {
	t.Helper()
	var found []wire.Ref
	for _, s := range slots {
		var x struct{ Ref *wire.Ref }
		if strings.HasPrefix(s, `{"ref":`) && json.Unmarshal([]byte(s), &x) == nil {
			found = append(found, *x.Ref)
		}
	}
	if len(found) != 1 {
		t.Fatalf("got %d refs, want 1", len(found))
	}
	return found[0]
}

// readAll reads the object of a ref in pieces.
func (w *world) readAll(session string, view wire.View, ref wire.Ref, piece int64) string {
	w.t.Helper()
	var out []byte
	for more := true; more; {
		r, err := w.call(wire.Command{
			Type: wire.CmdRead, Session: session, View: view, Ref: &ref, From: int64(len(out)), Length: piece,
		})
		if err != nil {
			w.fail.Fatalf("read: %v", err)
		}
		got := r.(wire.ReadResult)
		if len(got.Data) == 0 || len(got.Data) > wire.InlineBytes {
			w.fail.Fatalf("read of %d bytes at %d: got %d", piece, len(out), len(got.Data))
		}
		out, more = append(out, got.Data...), got.More
	}
	return string(out)
}

func TestRef_LargeMessageAndRecord(t *testing.T) {
	big := strings.Repeat("0123456789", 150<<10) // 1.5 MB
	line := assistant("big", "e2", big)
	var whole struct{ Message json.RawMessage }
	if err := json.Unmarshal([]byte(line), &whole); err != nil {
		t.Fatal(err)
	}
	malformed := `{"type":"message","x":"` + big
	for _, row := range []struct {
		name  string
		line  string
		since []string // later records
		view  wire.View
		want  string
		role  string
	}{
		{"message", line, nil, wire.ViewTranscript, string(whole.Message), "assistant"},
		{"message in the context", line, nil, wire.ViewContext, string(whole.Message), "assistant"},
		{
			"message amended", line,
			[]string{childUsage("u", "big", "big", 5)},
			wire.ViewTranscript, strings.Replace(string(whole.Message), `{"input":1,"cost":{"total":0}}`, `{"input":5,"cost":{"total":0.5}}`, 1), "assistant",
		},
		{
			"message edited to a large one", assistant("big", "e2", "small"),
			[]string{contextEdit("x", "big", "big", `{"content":"`+big+`"}`)},
			wire.ViewContext, `{"role":"assistant","content":"` + big + `","provider":"p","model":"m","usage":{"input":1,"cost":{"total":0}}}`, "assistant",
		},
		{"record", line, nil, wire.ViewRecords, line, ""},
		{"record with CR", line + "\r", nil, wire.ViewRecords, line + "\r", ""},
		{"malformed record", malformed, nil, wire.ViewRecords, malformed, ""},
		{"record that is larger in base64", strings.Repeat("\xff", 900<<10), nil, wire.ViewRecords, strings.Repeat("\xff", 900<<10), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			path := w.write("a.jsonl", sessionText(3))
			w.e.changed(path)
			live := w.attach(wire.Command{Session: "a", View: row.view})
			live.untilLive()
			w.extendFile(path, row.line+"\n"+lines(row.since...))
			w.look("a")
			live.drain()
			fresh := w.attach(wire.Command{Session: "a", View: row.view})
			fresh.untilLive()
			for name, f := range map[string]*follower{"live": live, "snapshot": fresh} {
				ref := refOf(t, f.slots)
				if ref.Bytes != int64(len(row.want)) || ref.Role != row.role {
					t.Errorf("%s: got %d bytes, role %q; want %d, %q", name, ref.Bytes, ref.Role, len(row.want), row.role)
				}
				if got := w.readAll("a", row.view, ref, 400_000); got != row.want {
					t.Errorf("%s: got %d bytes, %.80s", name, len(got), got)
				}
				if got := w.readAll("a", row.view, ref, 1<<40); got != row.want {
					t.Errorf("%s: got %d bytes in large pieces", name, len(got))
				}
			}
			// The ref is of bytes, not of a place.
			w.replaceFile(path, sessionText(3)+strings.Replace(row.line, "012345", "112345", 1)+"\n")
			w.look("a")
			ref := refOf(t, fresh.slots)
			if strings.Contains(row.line, "012345") {
				w.refuse(wire.Command{Type: wire.CmdRead, Session: "a", View: row.view, Ref: &ref, Length: 10}, wire.CodeConflict)
			}
		})
	}
}

func TestRef_ReadRefuses(t *testing.T) {
	w := newWorld(t)
	w.create("s1")
	w.append("s1", chain(0, 3)...)
	ref := func(change func(r *wire.Ref)) *wire.Ref {
		r := wire.Ref{Sequence: 2, Bytes: 100}
		change(&r)
		return &r
	}
	for _, row := range []struct {
		name string
		c    wire.Command
		want wire.Code
	}{
		{"no ref", wire.Command{View: wire.ViewRecords, Length: 1}, wire.CodeBadArgument},
		{"no view", wire.Command{Ref: ref(func(*wire.Ref) {}), Length: 1}, wire.CodeBadArgument},
		{"no length", wire.Command{View: wire.ViewRecords, Ref: ref(func(*wire.Ref) {})}, wire.CodeBadArgument},
		{"from before the object", wire.Command{View: wire.ViewRecords, Ref: ref(func(*wire.Ref) {}), From: -1, Length: 1}, wire.CodeBadArgument},
		{"from behind the object", wire.Command{View: wire.ViewRecords, Ref: ref(func(*wire.Ref) {}), From: 101, Length: 1}, wire.CodeBadArgument},
		{"another digest", wire.Command{View: wire.ViewRecords, Ref: ref(func(*wire.Ref) {}), Length: 1}, wire.CodeConflict},
		{"no such record", wire.Command{View: wire.ViewRecords, Ref: ref(func(r *wire.Ref) { r.Sequence = 99 }), Length: 1}, wire.CodeConflict},
		{"more bytes than stand before the record's end", wire.Command{View: wire.ViewRecords, Ref: ref(func(r *wire.Ref) { r.Bytes = 1 << 40 }), Length: 1}, wire.CodeConflict},
		{"no such message", wire.Command{View: wire.ViewContext, Ref: ref(func(r *wire.Ref) { r.Part = 7 }), Length: 1}, wire.CodeConflict},
		{"a part beyond its type", wire.Command{View: wire.ViewContext, Ref: ref(func(r *wire.Ref) { r.Part = 256 }), Length: 1}, wire.CodeConflict},
		{"below zero", wire.Command{View: wire.ViewContext, Ref: ref(func(r *wire.Ref) { r.Bytes = -1 }), From: -1, Length: 1}, wire.CodeBadArgument},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.c.Type, row.c.Session = wire.CmdRead, "s1"
			w.refuse(row.c, row.want)
		})
	}
}

// A record over the record limit is never held: a marker stands for it.
func TestRef_OversizedRecord(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.RecordBytesMax = 64 << 10 })
	huge := user("huge", "e2", strings.Repeat("x", 3<<20))
	path := w.write("a.jsonl", sessionText(3))
	w.e.changed(path)
	live := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	live.untilLive()
	w.extendFile(path, lines(huge, user("after", "huge", "after")))
	w.look("a")
	live.drain()
	fresh := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	fresh.untilLive()
	marker := fmt.Sprintf(`{"role":"sessiond","kind":"oversized","sequence":5,"bytes":%d}`, len(huge))
	for _, f := range []*follower{live, fresh} {
		if len(f.slots) != 5 || f.slots[3] != marker || !strings.Contains(f.slots[4], "after") {
			t.Errorf("got\n%s\nwant %s before the last", f.text(), marker)
		}
	}
	records := w.attach(wire.Command{Session: "a", View: wire.ViewRecords})
	records.untilLive()
	if got := w.readAll("a", wire.ViewRecords, refOf(t, records.slots), 1<<20); got != huge {
		t.Errorf("record: got %d bytes, want %d", len(got), len(huge))
	}
	raw := w.attach(wire.Command{Session: "a", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
	raw.untilLive()
	if raw.raw.String() != string(readFile(t, path)) {
		t.Errorf("raw: got %d bytes", raw.raw.Len())
	}
}

// A client that takes small frames gets a large record in parts.
func TestRaw_LargeRecordInParts(t *testing.T) {
	w := newWorld(t)
	text := sessionText(2) + lines(user("big", "e1", strings.Repeat("x", 5<<20)), user("end", "big", "end"))
	path := w.write("a.jsonl", text)
	w.e.changed(path)
	f := w.attach(wire.Command{Session: "a", View: wire.ViewRecords, Encoding: wire.EncodingRaw})
	f.until("a part", func() bool { return f.raw.Len() > 1<<20 })
	if f.cursor.Sequence != 3 || f.resume().Resume != nil {
		t.Fatalf("inside the third record: at %v", f.cursor)
	}
	f.untilLive()
	if f.raw.String() != text {
		t.Errorf("got %d bytes, want %d", f.raw.Len(), len(text))
	}
	// The same as a tail, dropped inside the record.
	tail := w.attach(wire.Command{Session: "a", View: wire.ViewRecords, Encoding: wire.EncodingRaw, Resume: ptr(pointAt(t, w, "a", 2))})
	tail.until("a part", func() bool { return tail.raw.Len() > 1<<20 })
	at := int(tail.cursor.Offset)
	kept := text[:at]
	tail.again(w)
	tail.raw.Reset()
	tail.untilLive()
	if kept+tail.raw.String() != text {
		t.Errorf("tail: got %d bytes behind %d, want %d", tail.raw.Len(), at, len(text)-at)
	}
}

func ptr[T any](v T) *T { return &v }

// Ids and names of any size are in no frame.
func TestFrames_HostileSizesStayWithinTheLimit(t *testing.T) {
	huge := strings.Repeat("\x01<", 400<<10)
	text, err := json.Marshal(huge)
	if err != nil {
		t.Fatal(err)
	}
	calls := make([]string, 50_000)
	for i := range calls {
		calls[i] = fmt.Sprintf("call-%d-%s", i, strings.Repeat("i", 30))
	}
	w := newWorld(t)
	path := w.write("a.jsonl", lines(
		strings.Replace(header, `"s1"`, string(text), 1),
		entry("session_info", "n", "", `"name":`+string(text)),
		toolCalls("many", "n", calls...),
		strings.Replace(toolCalls("m", "many", "c"), `"c"`, string(text), 1),
		strings.Replace(user("leaf", "m", "x"), `"leaf"`, string(text), 1),
	))
	w.e.changed(path)
	live := w.attach(wire.Command{Session: "a", View: wire.ViewTranscript})
	live.untilLive()
	if live.result.ID != "a" || live.result.Leaf != nil {
		t.Errorf("id %.20q, leaf %v; want the file's name, and none", live.result.ID, live.result.Leaf != nil)
	}
	w.extendFile(path, lines(toolCalls("again", "", calls...)))
	w.look("a")
	live.drain()
	if live.state.Turn != wire.TurnAwaitingTool || len(live.state.OpenCalls) == 0 {
		t.Errorf("state %s with %d calls", live.state.Turn, len(live.state.OpenCalls))
	}
	// A tail that is larger in base64.
	w.extendFile(path, `{"type":"message","id":"t","x":"`+strings.Repeat("\xff", 900<<10)+`"}`)
	w.look("a")
	records := w.attach(wire.Command{Session: "a", View: wire.ViewRecords})
	records.untilLive()
	records.drain()
	if records.provisional == nil || records.provisional.Record != nil {
		t.Errorf("provisional: got %v, want one with its bytes only", records.provisional != nil)
	}
	for _, s := range w.list(wire.Command{}).Sessions {
		if len(s.ID) > wire.SessionIDMax || len(*s.Title) > 8<<10 {
			t.Errorf("listing: id of %d bytes, title of %d", len(s.ID), len(*s.Title))
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}
