package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"sessiond/wire"
)

const (
	demoSession   = "demo"
	demoExchanges = 60
	demoEvery     = time.Second
)

// demo creates a session that grows for a minute, prints once how to attach
// to it, and lets it grow in the background until ctx ends.
func (d *daemon) demo(ctx context.Context, out io.Writer, attachLine func(session string) string) error {
	name, done, err := d.createDemo(ctx)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if _, err := fmt.Fprintf(out, "A session that grows for a minute. Attach to it from another terminal:\n\n  %s\n\n", attachLine(name)); err != nil {
		return err
	}
	d.work.Go(func() {
		if err := growDemo(ctx, done, d.appendTo(name)); err != nil && ctx.Err() == nil {
			d.log.Error("demo", "session", name, "error", err)
		}
	})
	return nil
}

// createDemo makes the session, or finds one of an earlier run that was
// stopped before its end, and returns how many exchanges it has. One that is
// complete stays as it is, and the new one gets the time behind its name.
func (d *daemon) createDemo(ctx context.Context) (name string, done int, err error) {
	for _, name := range []string{demoSession, demoSession + "-" + time.Now().Format("20060102-150405")} {
		resp, err := d.Handle(ctx, wire.Request{Command: wire.Command{Type: wire.CmdCreate, SessionID: name}})
		if err != nil {
			return "", 0, err
		}
		r, _ := resp.Result.(wire.CreateResult)
		if done := int(r.Head.Sequence-1) / 2; done < demoExchanges { // behind the header, two entries each
			return name, done, nil
		}
	}
	return "", 0, fmt.Errorf("session %s exists", demoSession)
}

func (d *daemon) appendTo(name string) func(context.Context, []string) error {
	return func(ctx context.Context, entries []string) error {
		_, err := d.Handle(ctx, wire.Request{Command: wire.Command{Type: wire.CmdAppend, Session: "owned:" + name + ".jsonl", Entries: entries}})
		return err
	}
}

// growDemo appends one exchange after the other, behind those that are done.
func growDemo(ctx context.Context, done int, add func(context.Context, []string) error) error {
	tick := time.NewTicker(demoEvery)
	defer tick.Stop()
	parent := ""
	if done > 0 {
		parent = fmt.Sprintf("%08x", 2*done)
	}
	for n := done; n < demoExchanges; n++ {
		var entries []string
		for _, m := range demoExchange(n) {
			e, id := demoEntry(m, parent, time.Now())
			entries, parent = append(entries, e), id
		}
		if err := add(ctx, entries); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

type demoMessage struct {
	id, role, text string
}

func demoExchange(n int) []demoMessage {
	left := demoExchanges - n - 1
	return []demoMessage{
		{fmt.Sprintf("%08x", 2*n+1), "user", fmt.Sprintf("What is %d times %d?", n+1, n+1)},
		{fmt.Sprintf("%08x", 2*n+2), "assistant", fmt.Sprintf("It is %d. %d more to come; kill the daemon in between and I go on where you were.", (n+1)*(n+1), left)},
	}
}

// demoEntry makes the entry of a message and returns its id, the parent of
// the next.
func demoEntry(m demoMessage, parent string, now time.Time) (entry, id string) {
	message := map[string]any{
		"role": m.role, "content": []map[string]string{{"type": "text", "text": m.text}}, "timestamp": now.UnixMilli(),
	}
	if m.role == "assistant" {
		message["provider"], message["model"], message["stopReason"] = "example", "example-1", "stop"
	}
	e := struct {
		Type      string         `json:"type"`
		ID        string         `json:"id"`
		ParentID  *string        `json:"parentId"`
		Timestamp string         `json:"timestamp"`
		Message   map[string]any `json:"message"`
	}{"message", m.id, nil, now.UTC().Format("2006-01-02T15:04:05.000Z"), message}
	if parent != "" {
		e.ParentID = &parent
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return string(b), m.id
}
