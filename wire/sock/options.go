package sock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sessiond/wire"
)

// Handler carries commands out. It is called from many goroutines; the
// context ends with the connection. An error that is no *wire.Error reaches
// the client as "internal" without its text. A Stream may be returned for an
// attach only; the connection closes it, whatever happens.
//
// hello, ping and detach never reach the Handler.
type Handler interface {
	Handle(ctx context.Context, r wire.Request) (wire.Response, error)
}

// Options of a server. Zero values mean the protocol's defaults.
type Options struct {
	Path    string  // of the socket; required
	Handler Handler // required

	Version      string   // of the program, for the hello
	Instance     string   // name of this process; "" means a random one
	Capabilities []string // nil means wire.Capabilities

	AllowUIDs []int        // users beside the daemon's own and root
	Logger    *slog.Logger // nil discards

	FrameBytesMax       int   // one incoming frame, and one outgoing raw body
	ChunkBytes          int   // packing target of snapshots, for the hello
	IncomingBytesMax    int64 // all large incoming frames together
	CommandsInFlightMax int   // per connection
	AttachmentsMax      int   // per connection
	ConnectionsMax      int
	ConnectionsReserve  int // the last of these serve status and list only

	PingInterval     time.Duration // of write silence
	SlowClientWindow time.Duration
	SlowClientBytes  int
}

func (o Options) withDefaults() Options {
	if o.Instance == "" {
		o.Instance = rand.Text()
	}
	if o.Capabilities == nil {
		o.Capabilities = wire.Capabilities
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&o.FrameBytesMax, wire.FrameBytesMax)
	setDefault(&o.ChunkBytes, wire.ChunkBytes)
	setDefault(&o.IncomingBytesMax, int64(wire.IncomingBytesMax))
	setDefault(&o.CommandsInFlightMax, wire.CommandsInFlightMax)
	setDefault(&o.AttachmentsMax, wire.AttachmentsMax)
	setDefault(&o.ConnectionsMax, wire.ConnectionsMax)
	setDefault(&o.ConnectionsReserve, wire.ConnectionsReserve)
	setDefault(&o.PingInterval, wire.PingInterval)
	setDefault(&o.SlowClientWindow, wire.SlowClientWindow)
	setDefault(&o.SlowClientBytes, wire.SlowClientBytes)
	return o
}

func (o Options) validate() error {
	if o.Handler == nil {
		return errors.New("sock: no handler")
	}
	if o.ConnectionsReserve >= o.ConnectionsMax {
		return fmt.Errorf("sock: a reserve of %d leaves nothing of %d connections", o.ConnectionsReserve, o.ConnectionsMax)
	}
	return nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
