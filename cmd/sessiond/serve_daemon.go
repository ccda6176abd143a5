package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sessiond/engine"
	"sessiond/wire"
	"sessiond/wire/sock"
)

// daemon is an engine behind a socket.
type daemon struct {
	log    *slog.Logger
	socket string
	engine *engine.Engine
	server atomic.Pointer[sock.Server] // nil until the socket is bound
	work   sync.WaitGroup              // of what the daemon does by itself
	cancel context.CancelFunc          // ends what looks after the socket
}

var _ sock.Handler = (*daemon)(nil)

// startDaemon starts the engine, which takes the lock of the state folder,
// and listens last.
func startDaemon(ctx context.Context, opt engine.Options) (*daemon, error) {
	began := time.Now()
	d := &daemon{log: opt.Logger, socket: opt.SocketPath}
	var err error
	if d.engine, err = engine.Open(ctx, opt); err != nil {
		return nil, err
	}
	from := time.Now()
	server, err := sock.Listen(ctx, sock.Options{
		Path: opt.SocketPath, Handler: d, Version: opt.Version, Logger: d.log, ChunkBytes: opt.ChunkBytes,
	})
	if err != nil {
		return nil, errors.Join(err, d.engine.Close(ctx))
	}
	d.server.Store(server)
	d.log.Info("start", "stage", "socket", "duration", time.Since(from).Round(time.Microsecond))
	var own context.Context
	own, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.work.Go(func() { d.keepListening(own, server) })
	d.log.Info("ready", "socket", server.Path(), "pid", os.Getpid(), "version", opt.Version,
		"duration", time.Since(began).Round(time.Microsecond))
	return d, nil
}

// keepListening binds the socket again where somebody removed its file.
func (d *daemon) keepListening(ctx context.Context, s *sock.Server) {
	tick := time.NewTicker(listenCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch again, err := s.Rebind(ctx); {
		case err != nil:
			d.log.Error("socket is gone and cannot be bound again", "socket", s.Path(), "error", err)
		case again:
			d.log.Warn("socket was removed; bound again", "socket", s.Path())
		}
	}
}

// stop drains: clients are answered and told goodbye, then the engine writes
// its index. The sessions are on disk already, so running out of time loses
// nothing.
func (d *daemon) stop(ctx context.Context) error {
	began := time.Now()
	d.log.Info("stopping")
	d.cancel()
	d.work.Wait()
	drain, cancel := context.WithTimeout(ctx, drainMax)
	defer cancel()
	if err := d.server.Load().Shutdown(drain); err != nil {
		d.log.Warn("connections cut", "error", err)
	}
	flush, cancel := context.WithTimeout(ctx, drainMax)
	defer cancel()
	err := d.engine.Close(flush)
	d.log.Info("stopped", "duration", time.Since(began).Round(time.Microsecond))
	return err
}

// daemonStatus is the answer to status: the engine's and the daemon's own.
type daemonStatus struct {
	engine.Status
	PID    int         `json:"pid"`
	Socket string      `json:"socket"`
	Server *sock.Stats `json:"server,omitempty"`
}

// Handle implements sock.Handler.
func (d *daemon) Handle(ctx context.Context, r wire.Request) (wire.Response, error) {
	resp, err := d.engine.Handle(ctx, r)
	if st, ok := resp.Result.(engine.Status); ok {
		full := daemonStatus{Status: st, PID: os.Getpid(), Socket: d.socket}
		if s := d.server.Load(); s != nil {
			stats := s.Stats()
			full.Server = &stats
		}
		resp.Result = full
	}
	return resp, err
}

// notify tells a service manager that started the daemon; see sd_notify(3).
func (d *daemon) notify(socket, state string) {
	if socket == "" {
		return
	}
	c, err := net.Dial("unixgram", socket) // a leading @ is an abstract name
	if err == nil {
		_, err = c.Write([]byte(state))
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		d.log.Warn("service manager not told", "state", state, "error", err)
	}
}
