package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Machine is what EnvironmentFile says: where a run took place.
type Machine struct {
	// Kernel, Agent and AgentGo are the agent's; Engines are those that carried the run's faults
	// and, before there was one, the engine that a packet fault would get, for EngineReason.
	Kernel       string   `json:"kernel,omitempty"`
	Agent        string   `json:"agent_version,omitempty"`
	AgentGo      string   `json:"agent_go_version,omitempty"`
	Engine       string   `json:"engine,omitempty"`
	EngineReason string   `json:"engine_reason,omitempty"`
	Engines      []string `json:"engines,omitempty"`
	// Client is netemctl's version. What follows is of the machine on which netemctl ran, which
	// is the agent's, too, where SameMachine says so.
	Client      string `json:"client_version"`
	SameMachine bool   `json:"same_machine"`
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	CPU         string `json:"cpu,omitempty"`
	CPUs        int    `json:"cpus"`
	// LoadBefore and LoadAfter are the numbers of runnable processes, averaged over 1, 5 and 15
	// minutes (getloadavg(3)); null where the system does not say.
	LoadBefore *Load `json:"load_before"`
	LoadAfter  *Load `json:"load_after"`
	// Began and Ended are the run's.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	// Lab is the name of the plan's, and LabFile its definition.
	Lab     string `json:"lab,omitempty"`
	LabFile string `json:"lab_file,omitempty"`
}

// Load is a load average.
type Load struct {
	Of1Min  float64 `json:"1_min"`
	Of5Min  float64 `json:"5_min"`
	Of15Min float64 `json:"15_min"`
}

func writeMachine(dir string, m Machine) error {
	return write(dir, EnvironmentFile, func(w io.Writer) error { return WriteJSON(w, "environment", m) })
}

// openMachine reads EnvironmentFile; a folder may be without one.
func openMachine(dir string) (m Machine, err error) {
	text, err := os.ReadFile(filepath.Join(dir, EnvironmentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &Envelope{Data: &m})
	}
	if err != nil {
		return m, fmt.Errorf("report: %s: %w", EnvironmentFile, err)
	}
	return m, nil
}
