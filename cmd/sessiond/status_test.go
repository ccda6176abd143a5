package main

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the daemon counts is shown in one order, also what this program does
// not know yet.
func TestStatus_Figures(t *testing.T) {
	const answer = `{"stateDir":"/state\u001b","socket":"/s","replay":{"cache_hits":1,"cache_misses":2,"cache_rejected":8,"invalidations":3,` +
		`"replay_builds":4,"replay_extensions":5,"digest_reads":6,"full_scans":7,"new_count":9},` +
		`"replayCache":{"heldBytes":10,"boundBytes":20},"chunkBytes":30,"recordIndex":{"heldBytes":11,"boundBytes":21,"fileBytes":31,"reads":41,"writes":51},` +
		`"chunks":{"spillBytes":5,"heldBytes":12345678901234567890,"mode":"a\u001bb","deep":{"x":1}},` +
		`"index":{"path":"/i","bytes":40,"schema":2,"sessions":3,"badValues":1,"rebuilt":2,"droppedWrites":0}}`
	for name, c := range map[string]struct {
		answer string
		want   []string
	}{
		"all": {answer, []string{
			"replay cache 10 of 20 bytes; hits 1, misses 2, invalidations 3, rejected 8",
			"replays      replay builds 4, replay extensions 5, full scans 7, digest reads 6, new count 9",
			"record index 11 of 21 bytes held, 31 in its file; pages written 51, read 41",
			"chunks       30 bytes held",
			`             deep {"x":1}, held bytes 12345678901234567890, mode a\x1bb, spill bytes 5`,
			"index        40 bytes, schema 2, 3 sessions; rebuilt 2, bad values 1, dropped writes 0",
		}},
		"chunks that are no object": {`{"chunks":7,"chunkBytes":1}`, []string{
			"replay cache 0 of 0 bytes; ", "replays      ", "record index 0 of 0 bytes held, 0 in its file; pages written 0, read 0", "chunks       1 bytes held",
			"index        0 bytes, schema 0, 0 sessions; rebuilt 0, bad values 0, dropped writes 0",
		}},
	} {
		var st statusAnswer
		if err := json.Unmarshal([]byte(c.answer), &st); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		p := &printer{Writer: bufio.NewWriter(&out)}
		p.status(st)
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if bad := unsafeText(out.String()); bad != "" {
			t.Errorf("%s: output has %s", name, bad)
		}
		var got []string
		for l := range strings.Lines(out.String()) {
			for _, label := range []string{"replay", "record", "chunks", "index", "  "} {
				if strings.HasPrefix(l, label) {
					got = append(got, strings.TrimSuffix(l, "\n"))
				}
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
