package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sessiond/engine"
	"sessiond/replay/pages"
	"sessiond/wire"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	*rootOptions
	sessionsDir string
	roots       []string
	replayCache byteSize
	indexMemory byteSize
	chunk       byteSize
	chunkMemory byteSize
	spillDir    string
	spill       byteSize
	recordMax   byteSize
	maxRecords  int64
	maxBytes    byteSize
	poll        bool
	logFormat   string
	logLevel    string
	demo        bool
}

const serveLong = `serve is the daemon: it follows the session files below its roots, read-only,
keeps owned sessions in a folder of its own, and answers clients on a unix
socket. It is ready when the socket accepts, which the last line of the start
log says, and READY=1 on $NOTIFY_SOCKET.

Without --root it follows the folders of known agents that exist:
  pi     $PI_CODING_AGENT_SESSION_DIR, else $PI_CODING_AGENT_DIR/sessions,
         else ~/.pi/agent/sessions
  prime  ~/.prime/agent/sessions
Any other folder of *.jsonl files may be followed too; files of no known format
are served in view records. NAME is a label, never a format.

SIGTERM or SIGINT drains: clients are told goodbye, the index is written, exit
code 0. A second signal ends the daemon at once. kill -9 is safe: what was
acknowledged is on disk, and clients go on where they were.

Exit code 8: another daemon holds the state folder or the socket.`

func newServeCommand(root *rootOptions) *cobra.Command {
	o := &serveOptions{
		rootOptions: root, replayCache: engine.DefaultReplayCacheBytes, chunk: wire.ChunkBytes, chunkMemory: 4 << 20, indexMemory: pages.DefaultBytes, spill: 1 << 30, recordMax: 64 << 20,
	}
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run the daemon",
		Long:    serveLong,
		Example: "  sessiond serve --root pi=$HOME/.pi/agent/sessions",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runServe(cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.sessionsDir, "sessions-dir", "", "folder of owned sessions (default $XDG_DATA_HOME/sessiond/sessions, or sessions in the state folder if --state-dir is given)")
	f.StringArrayVar(&o.roots, "root", nil, "folder to follow, as NAME=PATH; may be given again")
	f.Var(&o.replayCache, "replay-cache-bytes", "memory for replays of sessions that nobody is attached to; 0 turns it off")
	f.Var(&o.chunk, "chunk-bytes", "target size of a snapshot's chunks")
	f.Var(&o.chunkMemory, "chunk-memory-bytes", "packed chunks held in memory for one view of a session; beyond, they go to the spill folder")
	f.StringVar(&o.spillDir, "spill-dir", "", "folder of packed chunks, this daemon's alone (default spill in the state folder)")
	f.Var(&o.spill, "spill-bytes", "size of all files in the spill folder; 0: none are written, and chunks are packed each time")
	f.Var(&o.indexMemory, "index-memory-bytes", indexMemoryUsage)
	f.Var(&o.recordMax, "record-bytes-max", "longer records are never held in memory; message views show a marker")
	f.Int64Var(&o.maxRecords, "max-replay-records", 0, "message views made of more records fail; 0: no limit")
	f.Var(&o.maxBytes, "max-replay-bytes", "message views made of more bytes fail; 0: no limit")
	f.BoolVar(&o.poll, "poll", false, "notice change by looking only, for file systems without events")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.BoolVar(&o.demo, "demo", false, "add a session that grows for a minute, and print how to attach to it")
	return cmd
}

func runServe(cmd *cobra.Command, o *serveOptions) error {
	log, err := o.logger(cmd, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	opt, err := o.engine(cmd)
	if err != nil {
		return err
	}
	opt.Logger = log
	tuneMemory(o.env, memoryBytesWanted+max(0, int64(o.replayCache)-engine.DefaultReplayCacheBytes))
	ctx := cmd.Context()
	d, err := startDaemon(ctx, opt)
	if err != nil && ctx.Err() != nil {
		log.Info("stopped before it was ready", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	d.notify(o.env("NOTIFY_SOCKET"), "READY=1")
	var failed error
	if o.demo {
		failed = d.demo(ctx, cmd.OutOrStdout(), o.attachLine(opt))
	}
	if failed == nil {
		<-ctx.Done()
	}
	d.notify(o.env("NOTIFY_SOCKET"), "STOPPING=1")
	return errors.Join(failed, d.stop(context.WithoutCancel(ctx)))
}

// logger logs to w. Text of sessions is never logged.
func (o *serveOptions) logger(cmd *cobra.Command, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, usageErrorf(cmd, "--log-level %q, want debug, info, warn or error", o.logLevel)
	}
	opt := &slog.HandlerOptions{Level: level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, opt)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opt)), nil
	}
	return nil, usageErrorf(cmd, "--log-format %q, want text or json", o.logFormat)
}

// engine makes the engine's options of the flags.
func (o *serveOptions) engine(cmd *cobra.Command) (engine.Options, error) {
	if o.chunk < 1<<10 || o.chunk > wire.InlineBytes {
		return engine.Options{}, usageErrorf(cmd, "--chunk-bytes %s, want 1KiB to 1MiB", o.chunk.String())
	}
	if o.chunkMemory == 0 || o.recordMax == 0 {
		return engine.Options{}, usageErrorf(cmd, "--chunk-memory-bytes and --record-bytes-max want at least 1")
	}
	if o.maxRecords < 0 {
		return engine.Options{}, usageErrorf(cmd, "--max-replay-records %d, want 0 or more", o.maxRecords)
	}
	opt := engine.Options{
		Version: buildVersion().Version, ReplayCacheBytes: int64(o.replayCache), RecordBytesMax: int64(o.recordMax),
		ChunkBytes: int(o.chunk), ChunkMemoryBytes: int64(o.chunkMemory), SpillBytes: int64(o.spill), Polling: o.poll,
		IndexMemoryBytes: int64(o.indexMemory), MaxReplayRecords: o.maxRecords, MaxReplayBytes: int64(o.maxBytes),
	}
	if o.spill == 0 {
		opt.SpillBytes = -1
	}
	var err error
	if opt.StateDir, err = o.stateFolder(); err != nil {
		return opt, err
	}
	if opt.SessionsDir, err = o.sessionsFolder(opt.StateDir); err != nil {
		return opt, err
	}
	if o.spillDir != "" {
		if opt.SpillDir, err = filepath.Abs(o.spillDir); err != nil {
			return opt, err
		}
	}
	if opt.SocketPath, err = o.socketPath(); err != nil {
		return opt, err
	}
	if opt.Roots, err = o.rootsOf(cmd); err != nil {
		return opt, err
	}
	return opt, nil
}

func (o *serveOptions) sessionsFolder(stateDir string) (string, error) {
	if o.sessionsDir != "" {
		return filepath.Abs(o.sessionsDir)
	}
	if o.stateDir != "" {
		return filepath.Join(stateDir, "sessions"), nil
	}
	if dir := o.env("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sessiond", "sessions"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "share", "sessiond", "sessions"), nil
}

// rootsOf returns the folders to follow: those given, else those of known
// agents that exist.
func (o *serveOptions) rootsOf(cmd *cobra.Command) ([]engine.Root, error) {
	var roots []engine.Root
	seen := map[string]bool{engine.OwnedRoot: true}
	for _, given := range o.roots {
		name, path, ok := strings.Cut(given, "=")
		if !ok || name == "" || path == "" {
			return nil, usageErrorf(cmd, "--root %q, want NAME=PATH", given)
		}
		if seen[name] {
			return nil, usageErrorf(cmd, "--root %q: the name %s is taken; each root needs its own", given, name)
		}
		seen[name] = true
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		roots = append(roots, engine.Root{Name: name, Path: abs})
	}
	if len(o.roots) > 0 {
		return roots, nil
	}
	for _, r := range o.knownRoots() {
		if info, err := os.Stat(r.Path); err == nil && info.IsDir() {
			roots = append(roots, r)
		}
	}
	return roots, nil
}

// knownRoots are the session folders of agents whose format this build knows.
func (o *serveOptions) knownRoots() []engine.Root {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // of a user without one: only what the environment names
	}
	below := func(dir string, elem ...string) string {
		if !filepath.IsAbs(dir) {
			return ""
		}
		return filepath.Join(append([]string{dir}, elem...)...)
	}
	first := func(paths ...string) string {
		for _, p := range paths {
			if p != "" {
				return p
			}
		}
		return ""
	}
	pi := first(below(o.env("PI_CODING_AGENT_SESSION_DIR")), below(o.env("PI_CODING_AGENT_DIR"), "sessions"), below(home, ".pi", "agent", "sessions"))
	prime := below(home, ".prime", "agent", "sessions")
	var roots []engine.Root
	for _, r := range []engine.Root{{Name: "pi", Path: pi}, {Name: "prime", Path: prime}} {
		if r.Path != "" {
			roots = append(roots, r)
		}
	}
	return roots
}

// attachLine is the command that attaches to a session of this daemon.
func (o *serveOptions) attachLine(opt engine.Options) func(session string) string {
	return func(session string) string {
		words := []string{os.Args[0], "attach", session}
		if o.stateDir != "" {
			words = append(words, "--state-dir", opt.StateDir)
		}
		if o.socket != "" {
			words = append(words, "--socket", opt.SocketPath)
		}
		words = append(words, "--view", "transcript")
		for i, w := range words {
			words[i] = shellWord(w)
		}
		return strings.Join(words, " ")
	}
}

// shellWord quotes a word for a POSIX shell where that is needed.
func shellWord(w string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=,:@+%"
	if w != "" && strings.Trim(w, plain) == "" {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// drainMax bounds each step of a stop.
const drainMax = 10 * time.Second

// listenCheck is how often the socket's file is looked at.
const listenCheck = 5 * time.Second
