package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"sessiond/wire/client"
)

// A daemon that is just stopping says goodbye: what creates asks the next one.
func TestCreateSession_DaemonSaysGoodbye(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	errAgain := errors.New("asked again")
	ctx, cancel := context.WithCancelCause(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if i == 1 {
				cancel(errAgain)
			}
			_, _ = c.Write([]byte(`{"type":"goodbye","code":"shutting_down","message":"stopping"}` + "\n"))
			_ = c.Close()
		}
	}()
	_, err = createSession(ctx, client.Options{Path: path}, client.CreateOptions{SessionID: "s"}, patience)
	if !errors.Is(err, errAgain) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want to be stopped at the second try", err)
	}
	_ = l.Close()
	<-served
}
