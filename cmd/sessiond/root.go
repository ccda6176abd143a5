package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sessiond/wire/sock"
)

// rootOptions are the options that all commands share.
type rootOptions struct {
	stateDir string // --state-dir; use stateFolder
	socket   string // --socket; use socketPath
	output   string // -o; use format
	color    string // --color; use colors

	env func(string) string
}

const rootLong = `sessiond keeps the sessions of coding agents: it serves them to any number of
clients, appends to them durably, and explains them offline.

Every flag may be given by an environment variable too: SESSIOND_ and the
flag's name in capitals, with _ for - (SESSIOND_STATE_DIR). A flag wins.

Exit codes:
  0    ok
  1    failure
  2    usage
  3    inspect FILE, inspect check: an unfinished last line only
  4    inspect FILE, inspect check: damaged lines
  5    inspect FILE, inspect check: a newer format than this build knows
  6    not found
  7    daemon unreachable
  8    conflict or locked
  130  interrupted`

// newRootCommand returns the command line of the program.
func newRootCommand() *cobra.Command {
	o := &rootOptions{env: os.Getenv}
	cmd := &cobra.Command{
		Use:           "sessiond",
		Short:         "Keep, serve and explain the sessions of coding agents",
		Long:          rootLong,
		Args:          usageArgs(cobra.NoArgs),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return o.fromEnvironment(cmd)
		},
	}
	f := cmd.PersistentFlags()
	f.StringVar(&o.stateDir, "state-dir", "", "folder of the daemon's state (default $XDG_STATE_HOME/sessiond)")
	f.StringVar(&o.socket, "socket", "", "socket of the daemon (default $XDG_RUNTIME_DIR/sessiond/sessiond.sock, or in the state folder if --state-dir is given)")
	f.StringVarP(&o.output, "output", "o", "text", "format of the output: text, json or jsonl; some commands have more or fewer")
	f.StringVar(&o.color, "color", "auto", "colour in text: auto, always or never (NO_COLOR counts as never)")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{cmd, err} })
	cmd.AddCommand(
		newAppendCommand(o),
		newAttachCommand(o),
		newCreateCommand(o),
		newInspectCommand(o),
		newLsCommand(o),
		newServeCommand(o),
		newStatusCommand(o),
		newVersionCommand(o),
	)
	return cmd
}

// fromEnvironment gives every flag that is not on the command line the value
// of its environment variable, if there is one.
func (o *rootOptions) fromEnvironment(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := "SESSIOND_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := o.env(name)
		if f.Changed || f.Name == "help" || value == "" || err != nil {
			return
		}
		if serr := cmd.Flags().Set(f.Name, value); serr != nil {
			err = usageErrorf(cmd, "%s: %w", name, serr)
		}
	})
	return err
}

// format returns the output format, which must be one of allowed.
func (o *rootOptions) format(cmd *cobra.Command, allowed ...string) (string, error) {
	if !slices.Contains(allowed, o.output) {
		return "", usageErrorf(cmd, "output format %q, want %s", o.output, strings.Join(allowed, ", "))
	}
	return o.output, nil
}

// stateFolder is the daemon's state folder as an absolute path.
func (o *rootOptions) stateFolder() (string, error) {
	if o.stateDir != "" {
		return filepath.Abs(o.stateDir)
	}
	if dir := o.env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sessiond"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state", "sessiond"), nil
}

// socketPath is where the daemon listens: a state folder that was chosen
// brings its own socket, so that two daemons do not meet. A path that was
// chosen is taken as it is, also when it is too long to be one.
func (o *rootOptions) socketPath() (string, error) {
	switch {
	case o.socket != "":
		return filepath.Abs(o.socket)
	case o.stateDir == "":
		return sock.DefaultPath(o.env, os.Getuid()), nil
	}
	dir, err := filepath.Abs(o.stateDir)
	return sock.PathFor(o.env, os.Getuid(), filepath.Join(dir, "sessiond.sock")), err
}
