package engine

import (
	"os"
	"path/filepath"
	"testing"

	"sessiond/testdata/gen"
	"sessiond/wire"
)

func BenchmarkSnapshot_Brief(b *testing.B) { benchmarkSnapshot(b, gen.Brief) }
func BenchmarkSnapshot_Small(b *testing.B) { benchmarkSnapshot(b, gen.Small) }

// benchmarkSnapshot pulls a transcript of 32 MiB from a warm replay, without a
// socket.
func benchmarkSnapshot(b *testing.B, p gen.Profile) {
	root := b.TempDir()
	w := newWorld(b, func(o *Options) { o.Roots = []Root{{Name: "f", Path: root}} })
	path := filepath.Join(root, "s.jsonl")
	if _, err := gen.AppendFile(path, gen.Options{Profile: p, Seed: 1, Bytes: 32 << 20}, 0); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	w.e.rescan(root)
	b.SetBytes(info.Size())
	b.ReportAllocs()
	no := false
	for b.Loop() {
		r, err := w.e.Handle(b.Context(), wire.Request{Command: wire.Command{
			Type: wire.CmdAttach, Session: "f:s.jsonl", View: wire.ViewTranscript, Live: &no,
		}})
		if err != nil {
			b.Fatal(err)
		}
		wake := make(chan struct{}, 1)
		r.Stream.Start(func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		for {
			f, ok, err := r.Stream.Next()
			if err != nil {
				break
			}
			if !ok {
				<-wake
			}
			if f.Release != nil {
				f.Release()
			}
		}
		r.Stream.Close()
	}
}
