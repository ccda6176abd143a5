package sock

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sessiond/wire"
)

func TestStream_ReplyFirstThenFramesThenDetach(t *testing.T) {
	st := &fakeStream{}
	st.push("1", "2")
	p := connect(t, listen(t, Options{Handler: attachTo(map[string]*fakeStream{"s": st})}))
	p.send(`{"id":"1","type":"attach","session":"s"}`)
	p.wantReply("1", "")
	p.wantText("1")
	p.wantText("2")
	st.push("3")
	p.wantText("3")
	p.send(`{"id":"2","type":"detach","attachment":"a1"}`)
	p.wantReply("2", "")
	if got := st.closes.Load(); got != 1 {
		t.Errorf("got %d closes before detach's reply, want 1", got)
	}
	st.push("4") // never seen
	p.send(`{"id":"3","type":"ping"}`)
	p.wantReply("3", "")
}

func TestStream_EndLeavesTheConnection(t *testing.T) {
	st := &fakeStream{}
	st.push("1")
	st.end(io.EOF)
	s := listen(t, Options{Handler: attachTo(map[string]*fakeStream{"s": st}), AttachmentsMax: 1})
	p := connect(t, s)
	for _, id := range []string{"1", "2"} { // the second needs the first's place
		p.send(`{"id":"` + id + `","type":"attach","session":"s"}`)
		p.wantReply(id, "")
		if id == "1" {
			p.wantText("1")
			p.send(`{"id":"p","type":"ping"}`)
			p.wantReply("p", "")
			st.mu.Lock()
			st.starts = 0
			st.mu.Unlock()
		}
	}
	p.send(`{"id":"3","type":"ping"}`)
	p.wantReply("3", "")
	if got := st.closes.Load(); got != 2 {
		t.Errorf("got %d closes of two attachments, want 2", got)
	}
}

func TestStream_AttachmentsAreBounded(t *testing.T) {
	streams := map[string]*fakeStream{"a": {}, "b": {}}
	p := connect(t, listen(t, Options{Handler: attachTo(streams), AttachmentsMax: 1}))
	p.send(`{"id":"0","type":"attach","session":"none"}`)
	p.wantReply("0", wire.CodeUnknownCommand)
	p.send(`{"id":"1","type":"attach","session":"a"}`)
	p.wantReply("1", "")
	p.send(`{"id":"2","type":"attach","session":"b"}`)
	p.wantReply("2", wire.CodeBusy)
	p.send(`{"id":"3","type":"detach","attachment":"a2"}`)
	p.wantReply("3", "")
	p.send(`{"id":"4","type":"attach","session":"b"}`)
	p.wantReply("4", "")
}

func TestStream_ErrorEndsTheConnectionAfterItsFrames(t *testing.T) {
	st := &fakeStream{}
	st.push("1")
	st.end(errors.New("disk on fire"))
	p := connect(t, listen(t, Options{Handler: attachTo(map[string]*fakeStream{"s": st})}))
	p.send(`{"id":"1","type":"attach","session":"s"}`)
	p.wantReply("1", "")
	p.wantText("1")
	p.wantEnd()
}

func TestStream_TakeTurns(t *testing.T) {
	s, err := newServer(t.Context(), Options{Handler: attachTo(nil)})
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(s, nil, 0, 1)
	w := &writer{c: c}
	for _, id := range []string{"a", "b", "c"} {
		st := &fakeStream{}
		st.push(id+"1", id+"2", id+"3")
		if id == "b" {
			st.frames = st.frames[:1] // has less than the others
		}
		c.enqueue(entry{line: []byte("reply " + id), attach: &attachment{id: id, stream: st, conn: c}})
	}
	c.owed <- struct{}{}
	c.owed <- struct{}{}
	c.owed <- struct{}{}
	if err := w.collect(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range w.bufs[1:] { // after the hello
		if !strings.ContainsAny(string(b), `{}`) {
			got = append(got, string(b))
		}
	}
	want := []string{"reply a", "reply b", "reply c", "a1", "b1", "c1", "a2", "c2", "a3", "c3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestStream_BatchIsBounded(t *testing.T) {
	s, err := newServer(t.Context(), Options{Handler: attachTo(nil)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"many small": {"x", batchFramesMax},
		"few large":  {strings.Repeat("x", 100<<10), 3},
		"one giant":  {strings.Repeat("x", 1<<20), 1},
	} {
		conn := newConn(s, nil, 0, 1)
		st := &fakeStream{}
		st.push(slices.Repeat([]string{c.text}, 100)...)
		a := &attachment{id: "a", stream: st, conn: conn}
		a.ready.Store(true)
		w := &writer{c: conn, atts: []*attachment{a}}
		if err := w.collectFrames(); err != nil || st.pulled != c.want {
			t.Errorf("%s: got %d frames in a batch, %v, want %d", name, st.pulled, err, c.want)
		}
	}
}

func TestStream_FramesAreReleasedWhenThePeerGoes(t *testing.T) {
	st := &fakeStream{}
	st.push(slices.Repeat([]string{strings.Repeat("x", 1<<20)}, 50)...)
	s := listen(t, Options{Handler: attachTo(map[string]*fakeStream{"s": st})})
	p := connect(t, s)
	p.send(`{"id":"1","type":"attach","session":"s"}`)
	p.wantReply("1", "")
	p.Close()
	stop(t, s)
	if got := st.closes.Load(); got != 1 {
		t.Errorf("got %d closes, want 1", got)
	}
	if got := int(st.released.Load()); got != st.pulled || got == 0 {
		t.Errorf("got %d frames released of %d pulled, want all", got, st.pulled)
	}
}

func TestStream_PanicEndsTheConnectionOnly(t *testing.T) {
	s := listen(t, Options{Handler: attachTo(map[string]*fakeStream{"s": nilFrames()})})
	p := connect(t, s)
	p.send(`{"id":"1","type":"attach","session":"s"}`)
	p.wantReply("1", "")
	p.wantEnd()
	q := connect(t, s)
	q.send(`{"id":"1","type":"ping"}`)
	q.wantReply("1", "")
	if got := s.Stats().Panics; got != 1 {
		t.Errorf("got %d panics, want 1", got)
	}
}

// nilFrames is a stream whose error panics when it is looked at.
func nilFrames() *fakeStream { return &fakeStream{err: panicking{}} }

type panicking struct{}

func (panicking) Error() string   { panic("no text") }
func (panicking) Is(error) bool   { panic("no comparison") }
func (panicking) Unwrap() []error { panic("no causes") }

func TestPing_AfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newServer(t.Context(), Options{Handler: attachTo(nil)})
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, s)
		p := pipe(t, s)
		start := time.Now()
		for i := range 3 {
			if f := p.read(); f.Type != wire.TypePing {
				t.Fatalf("got %+v, want a ping", f)
			}
			if got, want := time.Since(start), time.Duration(i+1)*wire.PingInterval; got != want {
				t.Errorf("ping %d: got it after %v, want %v", i, got, want)
			}
		}
		p.Close()
	})
}

func TestSlowClient_ClosedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStream{}
		st.push(strings.Repeat("x", 1<<20), "last")
		s, err := newServer(t.Context(), Options{Handler: attachTo(map[string]*fakeStream{"s": st})})
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, s)
		p := pipe(t, s)
		start := time.Now()
		p.send(`{"id":"1","type":"attach","session":"s"}`)
		// The peer reads a little, then nothing.
		if _, err := io.CopyN(io.Discard, p.Conn, 1000); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(wire.SlowClientWindow - time.Nanosecond) // bubble time
		synctest.Wait()
		if st.closes.Load() != 0 {
			t.Fatalf("closed after %v, want %v", time.Since(start), wire.SlowClientWindow)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if st.closes.Load() != 1 {
			t.Fatal("what a slow client retained is not closed")
		}
		if got := s.Stats(); got.SlowClients != 1 || got.Connections != 0 {
			t.Errorf("got %+v, want one slow client and no connection", got)
		}
		p.Close()
	})
}

func TestSlowClient_ProgressKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStream{}
		body := strings.Repeat("x", 2<<20)
		st.push(body)
		s, err := newServer(t.Context(), Options{Handler: attachTo(map[string]*fakeStream{"s": st})})
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, s)
		p := pipe(t, s)
		p.send(`{"id":"1","type":"attach","session":"s"}`)
		p.wantReply("1", "")
		// Just above the least rate: every piece takes most of the window.
		for read := 0; read < len(body); {
			time.Sleep(wire.SlowClientWindow / 5) // bubble time
			n, err := io.CopyN(io.Discard, p.Conn, wire.SlowClientBytes/4)
			if read += int(n); err != nil {
				t.Fatalf("after %d bytes: %v", read, err)
			}
		}
		if got := s.Stats().SlowClients; got != 0 {
			t.Errorf("got %d slow clients, want none", got)
		}
		p.Close()
	})
}

// TestReplies_AreOwedWithinABound has a client send without reading: the
// server must stop reading it rather than hoard replies.
func TestReplies_AreOwedWithinABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newServer(t.Context(), Options{Handler: attachTo(nil), CommandsInFlightMax: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer stop(t, s)
		p := pipe(t, s)
		sent := 0
		_ = p.SetWriteDeadline(time.Now().Add(time.Second))
		for ; sent < 100; sent++ {
			if _, err := io.WriteString(p.Conn, "{\"id\":\"x\",\"type\":\"ping\"}\n"); err != nil {
				break
			}
		}
		if sent >= 100 {
			t.Errorf("got %d commands read without a reply taken, want about %d", sent, 4*repliesOwedFactor)
		}
		p.Close()
	})
}
