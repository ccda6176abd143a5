package sock

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"sessiond/wire"
)

func rebind(t *testing.T, s *Server, want bool) {
	t.Helper()
	if got, err := s.Rebind(t.Context()); got != want || err != nil {
		t.Fatalf("Rebind: got %v, %v, want %v", got, err, want)
	}
}

// A socket whose file is gone or another's is bound again. Connections go on.
func TestRebind(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(path string) error
	}{
		{"removed", os.Remove},
		{"renamed away", func(path string) error { return os.Rename(path, path+".old") }},
		{"replaced by a dead socket", func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + "2", Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return errors.Join(l.Close(), os.Rename(path+"2", path))
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			stream := &fakeStream{}
			s := listen(t, Options{Handler: attachTo(map[string]*fakeStream{"s": stream})})
			rebind(t, s, false)
			old := connect(t, s)
			old.send(`{"id":"1","type":"attach","session":"s","view":"records"}`)
			old.wantReply("1", "")
			if err := row.change(s.Path()); err != nil {
				t.Fatal(err)
			}
			rebind(t, s, true)
			rebind(t, s, false)
			fresh := connect(t, s)
			fresh.send(`{"id":"1","type":"ping"}`)
			fresh.wantReply("1", "")
			stream.push("more")
			old.wantText("more")
			old.send(`{"id":"2","type":"ping"}`)
			old.wantReply("2", "")
			info, err := os.Lstat(s.Path())
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("got a socket of %v, %v, want one of the user's alone", info, err)
			}
			done := make(chan struct{})
			go func() { defer close(done); stop(t, s) }()
			old.wantGoodbye(wire.GoodbyeShuttingDown)
			fresh.wantGoodbye(wire.GoodbyeShuttingDown)
			<-done
			if _, err := os.Lstat(s.Path()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("after Shutdown: the socket's file is there: %v", err)
			}
		})
	}
}

// What is not a dead socket is left alone, and the server goes on.
func TestRebind_RefusesWhatIsInTheWay(t *testing.T) {
	s := listen(t, Options{Handler: attachTo(nil)})
	old := connect(t, s)
	if err := errors.Join(os.Remove(s.Path()), os.WriteFile(s.Path(), []byte("precious"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Rebind(t.Context()); got || !errors.Is(err, ErrUnsafe) {
		t.Errorf("a file: got %v, %v, want %v", got, err, ErrUnsafe)
	}
	if b, err := os.ReadFile(s.Path()); err != nil || string(b) != "precious" {
		t.Errorf("the file is %q, %v", b, err)
	}
	old.send(`{"id":"1","type":"ping"}`)
	old.wantReply("1", "")
	if err := os.Remove(s.Path()); err != nil {
		t.Fatal(err)
	}
	rebind(t, s, true)
	connect(t, s)
}

// Rebind and Shutdown may meet in any order: nothing listens afterwards.
func TestRebind_WhileShuttingDown(t *testing.T) {
	for range 20 {
		s := listen(t, Options{Handler: attachTo(nil)})
		path := s.Path()
		connect(t, s)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := s.Rebind(ctx); err != nil {
					t.Errorf("Rebind: %v", err)
				}
			})
		}
		wg.Go(func() {
			if err := s.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		})
		wg.Go(func() { _, _ = s.Stats(), s.Path() })
		wg.Wait()
		cancel()
		if c, err := Dial(t.Context(), path); err == nil {
			c.Close()
			t.Error("something listens after Shutdown")
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket's file is there: %v", err)
		}
		if got, err := s.Rebind(t.Context()); got || err != nil {
			t.Errorf("Rebind afterwards: got %v, %v, want nothing done", got, err)
		}
	}
}

func TestServer_HelloTellsTheChunkSize(t *testing.T) {
	for given, want := range map[int]int{0: wire.ChunkBytes, 4096: 4096} {
		c, err := Dial(t.Context(), listen(t, Options{Handler: attachTo(nil), ChunkBytes: given}).Path())
		if err != nil {
			t.Fatal(err)
		}
		line, err := newPeer(t, c).frames.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		var hello wire.Hello
		if err := json.Unmarshal(line, &hello); err != nil || hello.Limits.ChunkBytes != want {
			t.Errorf("ChunkBytes %d: got %d, %v, want %d", given, hello.Limits.ChunkBytes, err, want)
		}
	}
}
