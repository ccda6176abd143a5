package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"sessiond/cmd/sessiond/internal/term"
)

// version may be set by the linker: -X main.version=v1.2.3.
var version string

// versionInfo is what `version -o json` prints.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // of the source; "" if it was built without
	Modified bool   `json:"modified"` // the source had changes beside the revision
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand(o *rootOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this build",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := o.format(cmd, formatText, formatJSON)
			if err != nil {
				return err
			}
			v := buildVersion()
			if format == formatJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), term.Safe(v.String()))
			return err
		},
	}
}

// String is the one line of `version`.
func (v versionInfo) String() string {
	s := "sessiond " + v.Version
	if v.Revision != "" {
		s += " (" + v.Revision[:min(len(v.Revision), 12)]
		if v.Modified {
			s += ", modified"
		}
		s += ")"
	}
	return s + " " + v.Go + " " + v.Platform
}

// buildVersion is what the linker and the build information say.
func buildVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
		if v.Version == "" && info.Main.Version != "" {
			v.Version = info.Main.Version
		}
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	return v
}
