package cli

import (
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"netemd/internal/version"
)

// versionView is both programs' versions as JSON.
type versionView struct {
	Client clientVersion `json:"client"`
	// Agent is null when it cannot be reached.
	Agent *agentVersion `json:"agent"`
}

type clientVersion struct {
	Version       string `json:"version"`
	GoVersion     string `json:"go_version"`
	OS            string `json:"os"`
	Arch          string `json:"arch"`
	SchemaVersion int    `json:"schema_version"`
}

type agentVersion struct {
	Version       string `json:"version"`
	GoVersion     string `json:"go_version"`
	Kernel        string `json:"kernel"`
	SchemaVersion int    `json:"schema_version"`
	PID           int    `json:"pid"`
	StateDir      string `json:"state_dir"`
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Versions of netemctl and of netemd", Args: arguments(0, ""),
		Long: "Say the versions of netemctl and, if it can be reached, of netemd.",
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			v := versionView{Client: clientVersion{
				version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH, version.Schema,
			}}
			unreached := ""
			if agent, err := a.dial(); err != nil {
				unreached = oneLine(err)
			} else {
				defer agent.Close()
				got, err := agent.Version(cmd.Context())
				if err != nil {
					return err
				}
				v.Agent = &agentVersion{got.Version, got.GoVersion, got.Kernel, got.SchemaVersion, got.PID, got.StateDir}
			}
			return a.emit(answer{kind: "version", data: v, table: func(w io.Writer, s style) {
				agent := unreached
				if v.Agent != nil {
					agent = v.Agent.Version + " " + v.Agent.GoVersion + ", kernel " + v.Agent.Kernel
				}
				pairs(w, s, [][2]string{
					{"netemctl", v.Client.Version + " " + v.Client.GoVersion + " " + v.Client.OS + "/" + v.Client.Arch},
					{"netemd", agent},
				})
			}})
		}),
	}
}
