package service

import (
	"net/netip"
	"path/filepath"
	"syscall"
	"time"
)

// Order is what a keeper is told: a service, and how to run it.
type Order struct {
	// Name is the service's, for its log.
	Name string `json:"name"`
	// Folder is the service's own folder, which exists and which only root may write
	// to: the keeper's state is there, and the log unless Log names another file.
	Folder string `json:"folder"`
	// Command is the program and its arguments. A program without a slash is looked for
	// in the PATH of Environment, one with a slash in Directory.
	Command []string `json:"command"`
	// Child, when set, is the main of this very program (child.Register) that is the
	// service; Command are its arguments then.
	Child string `json:"child,omitempty"`
	// Environment is all of the service's environment.
	Environment []string `json:"environment,omitempty"`
	// Directory is where it starts; "/" when empty.
	Directory string   `json:"directory,omitempty"`
	Identity  Identity `json:"identity"`
	// Lifeline gives the service the agent's end of a pipe as standard input, which ends
	// with the agent; else it is /dev/null.
	Lifeline bool `json:"lifeline,omitempty"`
	// OwnIPC puts it into an IPC namespace of its own, so that System V segments end
	// with it.
	OwnIPC bool `json:"own_ipc,omitempty"`
	// Log is the log file that Writer makes or appends to, with its rights; empty is
	// LogPath in the folder.
	Log    string    `json:"log,omitempty"`
	Writer *Identity `json:"writer,omitempty"`
	// LogLimit is how many bytes of its output are kept; 0 is DefaultLogLimit.
	LogLimit int64     `json:"log_limit,omitempty"`
	Ready    Readiness `json:"ready"`
	// Stop are the signals that end it, and how long each may take; what is left after
	// them is killed. Empty is SIGTERM and two seconds.
	Stop []Step `json:"stop,omitempty"`
	// StopMain sends them to its first process alone, which ends its others.
	StopMain bool `json:"stop_main,omitempty"`
}

// DefaultLogLimit is how much of a service's output is kept: the folder is in /run,
// which is memory.
const DefaultLogLimit = 8 << 20

// StopLimit is how long a stop by o may take until all is killed.
func (o Order) StopLimit() time.Duration {
	limit := killLimit
	for _, s := range o.steps() {
		limit += s.Wait
	}
	return limit
}

func (o Order) steps() []Step {
	if len(o.Stop) == 0 {
		return []Step{{syscall.SIGTERM, 2 * time.Second}}
	}
	return o.Stop
}

// killLimit is how long what was killed may take to be gone.
const killLimit = 5 * time.Second

// Step is a signal and how long to wait for the end that it asks for.
type Step struct {
	Signal syscall.Signal `json:"signal"`
	Wait   time.Duration  `json:"wait_ns"`
}

// Identity is whom a process runs as.
type Identity struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	// Groups are the supplementary ones.
	Groups []uint32 `json:"groups,omitempty"`
}

// Readiness is the question whether a service is ready. Without any, it is when it
// still lives after a moment.
type Readiness struct {
	// TCP are addresses of which one takes a connection. What listens there before the
	// service starts is an error.
	TCP []netip.AddrPort `json:"tcp,omitempty"`
	// Postgres is the user that a PostgreSQL at TCP asks for a password: it takes connections
	// before it is ready.
	Postgres string `json:"postgres,omitempty"`
	// HTTP is a URL that answers with a status of 200 to 399.
	HTTP string `json:"http,omitempty"`
	// Command ends with exit status 0; it runs as the service does, 5 s at most.
	Command []string `json:"command,omitempty"`
	// Within is how long all of it may take; 0 is DefaultReadyTimeout.
	Within time.Duration `json:"within_ns,omitempty"`
}

// DefaultReadyTimeout is how long a service may take to become ready.
const DefaultReadyTimeout = 30 * time.Second

// LogPath is a service's log in its folder.
func LogPath(folder, name string) string { return filepath.Join(folder, name+".log") }

// State is what a keeper tells of its service.
type State struct {
	// Keeper is the process that tells it, and that is to be stopped.
	Keeper Process `json:"keeper"`
	// Main is the service's first process.
	Main Process `json:"main"`
	// Ready says that it was ready once.
	Ready bool `json:"ready"`
	// Outage is what is done to it now: Kill, Stop, Restart, or empty for nothing.
	Outage string `json:"outage,omitempty"`
	// Ended is when its last process ended; nil while one lives. Status is how the first
	// one ended: "exit status 1", "killed by SIGKILL"; it may have left others behind.
	Ended  *time.Time `json:"ended,omitempty"`
	Status string     `json:"status,omitempty"`
	// Failure says why it did not become ready, Tail are the last lines that it said then.
	Failure string `json:"failure,omitempty"`
	Tail    string `json:"tail,omitempty"`
}

// Process names a process so that a later one of the same number is not taken for it.
type Process struct {
	PID int `json:"pid"`
	// Start is in clock ticks since boot (field 22 of proc_pid_stat(5)).
	Start uint64 `json:"start"`
}
