package service

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/child"
)

// keeperChild is the name of the keeper among this program's children.
const keeperChild = "service"

func init() { child.Register(keeperChild, keeperMain) }

// keeper runs one service. All of it but the checks and the reading of the output
// happens on one goroutine, on one thread: the service's processes are its children,
// and die with it if it is killed.
type keeper struct {
	order Order
	out   io.WriteCloser // where the agent reads the states; nil once it need not
	state State

	log     *recorder
	written chan struct{} // closed when all of the output is written

	main  int // 0 before the start and after its end
	gone  bool
	steps []Step
	next  <-chan time.Time // when the next step of a stop is due
	dying bool             // it is being stopped
	// calls are what other goroutines want done on the keeper's thread, over is closed at
	// the end of it. checks are the running commands of the question whether it is ready.
	calls  chan func()
	over   chan struct{}
	checks map[int]chan<- unix.WaitStatus
	// asked has the answer to that question; unask ends it.
	asked chan error
	unask context.CancelFunc
	// outage is what is done to the service now, nil for nothing; wake says that something of
	// it is due. listener takes the calls for it, in folder.
	outage   *outage
	wake     <-chan time.Time
	listener net.Listener
	folder   *os.File
}

func keeperMain([]string) int {
	// The thread must last as long as the process: what it starts gets SIGKILL at its end.
	runtime.LockOSThread()
	k := &keeper{
		out: os.Stdout, calls: make(chan func()), over: make(chan struct{}),
		checks: map[int]chan<- unix.WaitStatus{}, asked: make(chan error, 1),
	}
	defer close(k.over)
	if err := k.run(); err != nil {
		k.fail(err)
		return 1
	}
	return 0
}

func (k *keeper) run() error {
	// A pipe that nobody reads any more is no reason to end, and ignoring the signals
	// would be inherited by the service.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
	stop, children := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM)
	signal.Notify(children, unix.SIGCHLD)
	if err := readOrder(os.Stdin, &k.order); err != nil {
		return err
	}
	var err error
	if k.state.Keeper, err = Identify(os.Getpid()); err != nil {
		return err
	}
	k.remember()
	if err := confine(k.order.Identity); err != nil {
		return err
	}
	if err := k.openLog(); err != nil {
		return err
	}
	for _, at := range k.order.Ready.TCP {
		if connectsAny(context.Background(), []netip.AddrPort{at}) == nil {
			return fmt.Errorf("port %d is taken: something listens on %s already", at.Port(), at)
		}
	}
	if err := k.listen(); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer k.closeSocket()
	if err := k.start(); err != nil {
		return err
	}
	k.tell()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	k.unask = cancel
	main, began := k.main, time.Now()
	go func() { k.asked <- k.ask(ctx, main, began) }()
	for {
		k.reap()
		k.goOn()
		if k.gone && !k.isDown() {
			break
		}
		select {
		case <-children:
		case <-stop:
			k.end()
		case <-k.next:
			k.step()
		case <-k.wake:
			k.due()
		case f := <-k.calls:
			f()
		case err := <-k.asked:
			k.ready(err)
		}
	}
	return k.finish()
}

// readOrder reads one line and not a byte more, since the rest is the service's
// lifeline.
func readOrder(from io.Reader, o *Order) error {
	const most = 4 << 20
	var line []byte
	r := bufio.NewReaderSize(oneByOne{from}, 16)
	for len(line) < most {
		b, err := r.ReadByte()
		if err != nil {
			return fmt.Errorf("order: %w", err)
		}
		if b == '\n' {
			return json.Unmarshal(line, o)
		}
		line = append(line, b)
	}
	return errors.New("order: too long")
}

// oneByOne reads a byte at a time.
type oneByOne struct{ io.Reader }

func (o oneByOne) Read(b []byte) (int, error) { return o.Reader.Read(b[:1]) }

// confine takes from this process what its service must not inherit, and makes it the
// parent of what the service leaves behind.
func confine(id Identity) error {
	// The agent is the last process that should be killed for memory; a service is not.
	if text, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil && len(text) > 0 && text[0] == '-' {
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0); err != nil {
			return err
		}
	}
	// The agent's limit of locked memory is for its maps.
	const lockedMemory = 8 << 20 // MLOCK_LIMIT of linux/resource.h
	if id.UID != 0 {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: lockedMemory, Max: lockedMemory}); err != nil {
			return fmt.Errorf("setrlimit: %w", err)
		}
	}
	unix.Umask(0o022)
	// Of this thread, which starts every process (PR_SET_NO_NEW_PRIVS of prctl(2)).
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper: %w", err)
	}
	return nil
}

// openLog opens the log and begins to read what the service will write.
func (k *keeper) openLog() (err error) {
	var f *os.File
	if k.order.Log == "" {
		f, err = openLog(LogPath(k.order.Folder, k.order.Name), 0o640)
		if err == nil {
			err = errors.Join(f.Chown(0, int(k.order.Identity.GID)), f.Chmod(0o640)) // so that its user can read it
		}
	} else {
		writer := k.order.Identity
		if k.order.Writer != nil {
			writer = *k.order.Writer
		}
		f, err = openAs(writer, k.order.Log)
	}
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	limit := k.order.LogLimit
	if limit == 0 {
		limit = DefaultLogLimit
	}
	k.log = newRecorder(f, limit)
	if info, err := f.Stat(); k.order.Log != "" && (err != nil || info.Size() > 0) {
		// Somebody's file, of which nobody knows what reads it: what the service says is what
		// was asked for there, and nothing else.
		k.log.quiet = true
	}
	return nil
}

// start starts the service, also one that was ended by an outage.
func (k *keeper) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	// A program may open /dev/stdout, which is the pipe.
	err = w.Chown(int(k.order.Identity.UID), int(k.order.Identity.GID))
	if err == nil {
		k.main, err = k.spawn(k.order.Command, w)
	}
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return err
	}
	k.gone, k.state.Status = false, ""
	written := make(chan struct{})
	k.written = written
	go func() {
		defer close(written)
		_, _ = io.Copy(k.log, r)
		_ = r.Close()
	}()
	k.state.Main, err = Identify(k.main)
	if err != nil {
		err = nil // it has ended, and is not reaped yet: the state says so soon
	}
	return err
}

// spawn starts a process as the service's user, in a session of its own. It must be
// called on the keeper's own thread.
func (k *keeper) spawn(argv []string, out *os.File) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = null.Close() }()
	o := k.order
	attr := &syscall.ProcAttr{
		Dir: "/", Env: o.Environment,
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	}
	if o.OwnIPC {
		attr.Sys.Cloneflags = unix.CLONE_NEWIPC
	}
	if o.Directory != "" {
		attr.Dir = o.Directory
	}
	if o.Child != "" {
		// It takes on its user by itself: the program's file may be for root alone.
		if o.Lifeline {
			attr.Files[0] = os.Stdin.Fd()
		}
		if o.Identity.UID != 0 {
			attr.Env = append(slices.Clone(attr.Env), child.UserVariable(o.Identity.UID, o.Identity.GID))
		}
		return syscall.ForkExec("/proc/self/exe", append([]string{os.Args[0]}, child.Args(o.Child, argv...)...), attr)
	}
	attr.Sys.Credential = o.Identity.Credential()
	return execute(argv, attr)
}

// reap takes in what has ended. k.gone is set when no process is left.
func (k *keeper) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // ECHILD
			k.gone = true
			return
		case pid == 0:
			return
		case pid == k.main:
			k.mainEnded(status)
		default:
			if exit, ok := k.checks[pid]; ok {
				delete(k.checks, pid)
				exit <- status
			}
		}
	}
}

// mainEnded notes how the service's first process ended. One that ends well may have
// put others in its place; else they are stopped.
func (k *keeper) mainEnded(status unix.WaitStatus) {
	k.state.Status = describe(status)
	k.main = 0
	if k.mainGone(status) {
		return
	}
	if status.ExitStatus() != 0 && !k.dying {
		k.end()
	}
}

func describe(s unix.WaitStatus) string {
	if s.Signaled() {
		return "killed by " + unix.SignalName(s.Signal())
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}

// end begins to stop the service.
func (k *keeper) end() {
	if k.dying {
		return
	}
	k.dying = true
	k.unask()
	k.abandon(errors.New("the service is being ended"))
	k.steps = k.order.steps()
	k.step()
}

// step takes the next step of a stop. The last one is taken again until nothing is
// left: what is killed may have started others meanwhile.
func (k *keeper) step() {
	const again = 50 * time.Millisecond
	s := Step{Signal: unix.SIGKILL, Wait: again}
	if len(k.steps) > 0 {
		s, k.steps = k.steps[0], k.steps[1:]
	}
	k.next = time.After(s.Wait)
	if k.order.StopMain && k.main != 0 && s.Signal != unix.SIGKILL {
		_ = unix.Kill(k.main, s.Signal) // it is not reaped, so it is still this one
		return
	}
	all, err := descendants(os.Getpid())
	if err != nil {
		return // the next step tries again
	}
	for _, p := range all {
		if fd, ok, _ := p.open(); ok {
			_ = unix.PidfdSendSignal(fd, s.Signal, nil, 0)
			_ = unix.Close(fd)
		}
	}
}

// ready takes the answer of the checks.
func (k *keeper) ready(err error) {
	k.reap() // the news of an end may come at the same moment
	if k.dying || k.gone {
		return
	}
	if err != nil {
		k.state.Failure = err.Error()
		k.end()
		return
	}
	k.state.Ready = true
	k.tell()
	k.hush()
}

// finish tells the end.
func (k *keeper) finish() error {
	select {
	case <-k.written:
	case <-time.After(time.Second): // another process was given the pipe
	}
	k.log.End()
	k.log.Say("%s: %s", k.order.Name, k.state.Status)
	if !k.state.Ready {
		k.state.Tail = k.log.Tail()
	}
	now := time.Now().UTC()
	k.state.Ended = &now
	k.tell()
	return nil
}

// fail tells that the service could not even be started.
func (k *keeper) fail(err error) {
	now := time.Now().UTC()
	k.state.Ended, k.state.Failure = &now, err.Error()
	k.tell()
}

// remember writes the state for the next agent.
func (k *keeper) remember() []byte {
	text, err := json.Marshal(k.state)
	if err == nil && k.order.Folder != "" {
		err = writeState(k.order.Folder, k.order.Name, text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "[netemd: state:", err, "]")
	}
	return text
}

// tell is remember, and tells the agent that started it.
func (k *keeper) tell() {
	text := k.remember()
	if k.out != nil {
		_, _ = k.out.Write(append(text, '\n'))
	}
}

// hush ends the talk with the agent, which has heard what it waited for.
func (k *keeper) hush() {
	if k.out != nil {
		_ = k.out.Close()
		k.out = nil
	}
}

func statePath(folder, name string) string { return filepath.Join(folder, name+".state.json") }

// writeState replaces the state in one step.
func writeState(folder, name string, text []byte) error {
	path := statePath(folder, name)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
