package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sessiond/wire"
	"sessiond/wire/client"
)

// shown prints items as text.
func shown(t *testing.T, view *textView, items ...client.Item) string {
	t.Helper()
	var b strings.Builder
	view.p = &printer{Writer: bufio.NewWriter(&b)}
	for _, item := range items {
		if err := view.item(item); err != nil {
			t.Fatal(err)
		}
	}
	if err := view.p.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func chunkOf(first int, texts ...string) *wire.SnapshotChunk {
	var meta []wire.Meta
	var messages []json.RawMessage
	for i, text := range texts {
		meta = append(meta, wire.Meta{Sequences: []wire.Sequence{wire.Sequence(first + i + 2)}})
		messages = append(messages, messageOf(text))
	}
	m, _ := json.Marshal(meta) // plain values
	all, _ := json.Marshal(messages)
	return &wire.SnapshotChunk{Meta: m, Messages: all}
}

func messageOf(text string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"role":"user","content":%q}`, text))
}

func intOf(n int) *int { return &n }

func TestTextView(t *testing.T) {
	var many []string
	for i := range 10 {
		many = append(many, fmt.Sprintf("text %d", i))
	}
	for _, tt := range []struct {
		name  string
		view  textView
		items []client.Item
		want  string
	}{
		{
			"snapshot",
			textView{view: wire.ViewTranscript},
			[]client.Item{&wire.SnapshotBegin{}, chunkOf(0, "one", "two"), &wire.SnapshotEnd{MessageCount: 2}},
			"--- 0 user, record 2\n  one\n\n--- 1 user, record 3\n  two\n\n",
		},
		{
			"tail",
			textView{view: wire.ViewTranscript, tailMax: 2},
			[]client.Item{&wire.SnapshotBegin{}, chunkOf(0, many[:5]...), chunkOf(5, many[5:]...), &wire.SnapshotEnd{MessageCount: 10}},
			"(8 earlier ones not shown; --all shows them)\n\n--- 8 user, record 10\n  text 8\n\n--- 9 user, record 11\n  text 9\n\n",
		},
		{
			"tail with changes",
			textView{view: wire.ViewTranscript, tailMax: 2},
			[]client.Item{
				&wire.SnapshotBegin{}, chunkOf(0, many[:3]...),
				&wire.SnapshotAmend{Amendments: []wire.Amendment{{Index: 0, Message: messageOf("unseen")}, {Index: 1, Message: messageOf("new")}, {Index: 2, Message: json.RawMessage("null")}}},
				&wire.SnapshotEnd{MessageCount: 3},
			},
			"(1 earlier ones not shown; --all shows them)\n\n--- 1 user, record 3\n  new\n\n",
		},
		{
			"bounded, with a tail",
			textView{view: wire.ViewTranscript, tailMax: 2},
			[]client.Item{
				&wire.SnapshotBegin{Bounded: &wire.Bounded{Mode: wire.BoundedWindow, First: 100}}, chunkOf(100, many[:3]...), &wire.SnapshotEnd{MessageCount: 3},
				&wire.Event{Cursor: wire.Cursor{Sequence: 200}, Have: intOf(104), Messages: json.RawMessage(`[` + string(messageOf("more")) + `]`)},
			},
			"(1 earlier ones not shown; --all shows them)\n\n--- 101 user, record 103\n  text 1\n\n--- 102 user, record 104\n  text 2\n\n--- 103 user, record 200\n  more\n\n",
		},
		{
			"changes",
			textView{view: wire.ViewTranscript},
			[]client.Item{
				&wire.SnapshotBegin{}, chunkOf(0, "one", "two"), &wire.SnapshotEnd{MessageCount: 2},
				&wire.Event{Cursor: wire.Cursor{Sequence: 9}, Keep: intOf(1), Reason: "branch", Have: intOf(2), Messages: json.RawMessage(`[` + string(messageOf("other")) + `]`)},
				&wire.Event{Cursor: wire.Cursor{Sequence: 10}, Have: intOf(2), Amended: []wire.Amendment{{Index: 0, Message: messageOf("ONE")}, {Index: 1, Message: json.RawMessage("null")}}},
			},
			"--- 0 user, record 2\n  one\n\n--- 1 user, record 3\n  two\n\n--- the first 1 messages stand, what follows replaces the rest (branch)\n\n" +
				"--- 1 user, record 9\n  other\n\n--- 0 user [changed]\n  ONE\n\n--- message 1 was taken out\n\n",
		},
		{
			"inside a snapshot",
			textView{view: wire.ViewTranscript, tailMax: 1},
			[]client.Item{
				&wire.SnapshotBegin{FirstIndex: 3}, chunkOf(7, "eight"), &wire.SnapshotEnd{MessageCount: 8},
				&wire.Event{Cursor: wire.Cursor{Sequence: 10}, Have: intOf(9), Messages: json.RawMessage(`[` + string(messageOf("nine")) + `]`)},
			},
			"--- user, record 9\n  eight\n\n--- 8 user, record 10\n  nine\n\n",
		},
		{
			"records",
			textView{view: wire.ViewRecords},
			[]client.Item{
				&wire.SnapshotBegin{}, &wire.SnapshotChunk{Messages: json.RawMessage(`[{"a":1},{"malformed":true,"base64":"G1syaiB4"}]`)}, &wire.SnapshotEnd{MessageCount: 2},
				&wire.Event{Cursor: wire.Cursor{Sequence: 3}, Record: json.RawMessage(`{"ref":{"sequence":3,"part":0,"bytes":2000000,"digest":"0000000000000000"}}`)},
			},
			"1\t{\"a\":1}\n2\t\\x1b[2j x\n3\t(2000000 bytes, too large to show)\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := shown(t, &tt.view, tt.items...); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

// The tail of a view of large messages is bounded in bytes too.
func TestTextView_TailBytes(t *testing.T) {
	view := textView{view: wire.ViewTranscript, tailMax: 200}
	big := strings.Repeat("x", tailBytes/3)
	shown(t, &view, &wire.SnapshotBegin{}, chunkOf(0, big, big, big, big))
	if view.bytes > tailBytes || len(view.tail) != 2 {
		t.Errorf("tail: got %d messages of %d bytes, want 2 of at most %d", len(view.tail), view.bytes, tailBytes)
	}
}

func placeAt(sequence int) client.Place {
	return client.Place{Cursor: wire.Cursor{Sequence: wire.Sequence(sequence), Offset: int64(sequence)}}
}

func TestPlaceFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "c")
		f, err := newPlaceFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.load(placeAt(7)); err != nil || got != placeAt(7) {
			t.Errorf("no file yet: got %v, %v, want what counts otherwise", got, err)
		}
		has := func(sequence int) {
			t.Helper()
			synctest.Wait()
			got, err := f.load(client.Place{})
			if err != nil || got != placeAt(sequence) {
				t.Errorf("got %v, %v, want the place after record %d", got, err, sequence)
			}
		}
		f.note(placeAt(1))
		has(1)
		f.note(placeAt(2)) // too soon
		f.note(placeAt(3))
		has(1)
		time.Sleep(placeEvery)
		has(3) // without another note
		f.note(placeAt(4))
		has(3)
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
		has(4)
		time.Sleep(2 * placeEvery)
		has(4)
	})
}

func TestPlaceFile_Unusable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	for _, text := range []string{"", "\n", "garbage\n", "s1.x\n", strings.Repeat("s", 10_000)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := newPlaceFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.load(client.Place{}); err == nil || !strings.Contains(err.Error(), "remove it to begin again") {
			t.Errorf("%.20q: got %v, want an error that says what to do", text, err)
		}
	}
	f, err := newPlaceFile(filepath.Join(t.TempDir(), "no", "such", "folder"))
	if err != nil {
		t.Fatal(err)
	}
	f.note(placeAt(1))
	if err := f.close(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: got %v, want %v", err, os.ErrNotExist)
	}
}

func TestMirror(t *testing.T) {
	for _, tt := range []struct {
		name, has string
		whole     int64 // bytes of whole lines
		bodies    []string
		want      string // "": conflict
	}{
		{"new", "", 0, []string{"ab\n", "c\n"}, "ab\nc\n"},
		{"goes on", "ab\n", 3, []string{"c\n"}, "ab\nc\n"},
		{"inside a record", "ab\nc", 3, []string{"cde\n"}, "ab\ncde\n"},
		{"inside the first record", "a", 0, []string{"ab\n"}, "ab\n"},
		{"a record in pieces", "ab\ncd", 3, []string{"c", "d", "e\n"}, "ab\ncde\n"},
		{"another last line", "ab\nx", 3, []string{"cd\n"}, ""},
		{"another last line, later", "ab\ncx", 3, []string{"c", "de\n"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m")
			if tt.has != "" {
				if err := os.WriteFile(path, []byte(tt.has), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m, err := openMirror(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.close()
			if got := m.place().Cursor; got.Offset != tt.whole {
				t.Errorf("place: got offset %d, want %d", got.Offset, tt.whole)
			}
			if _, err := openMirror(path); exitCode(err) != exitConflict {
				t.Errorf("opened twice: got %v, want a conflict", err)
			}
			for _, body := range tt.bodies {
				if err = m.item(&client.Records{Body: []byte(body)}); err != nil {
					break
				}
			}
			if (exitCode(err) == exitConflict) != (tt.want == "") {
				t.Fatalf("got %v, want a conflict: %t", err, tt.want == "")
			}
			if err == nil {
				err = m.item(&wire.SnapshotBegin{}) // of another history
				if exitCode(err) != exitConflict {
					t.Errorf("the view begins again: got %v, want a conflict", err)
				}
			} else {
				tt.want = tt.has
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != tt.want {
				t.Errorf("file: got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

// A mirror may be longer than what is read at once.
func TestMirror_Large(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	line := strings.Repeat("x", 999_999) + "\n"
	if err := os.WriteFile(path, []byte(strings.Repeat(line, 5)+"rest"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := openMirror(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	got := m.place().Cursor
	if got.Sequence != 5 || got.Offset != 5_000_000 || string(m.rest) != "rest" {
		t.Errorf("got %s and %.20q, want 5 records in 5000000 bytes and the rest", got, m.rest)
	}
}
