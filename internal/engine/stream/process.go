package stream

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"netemd/internal/child"
)

// ChildName is the name of the proxy among the agent's children. Its arguments:
//
//	--api PATH        the unix socket of its API; a stale one is replaced
//	--listen ADDR     where clients connect, such as 10.77.0.2:15432
//	--upstream ADDR   where it forwards to
//	--name NAME       of the proxy in the API; default "target"
//	--serve ADDR      a TCP address of the API, for clients of Toxiproxy; default none
//	--user UID:GID    whom it becomes once its API listens; it stays root when the file of
//	                  its program is for root alone, since it may have to start over
//
// Its standard input is the agent's lifeline: when that ends, the proxy takes every
// fault away and keeps serving. SIGTERM and SIGINT end it.
const ChildName = "proxy"

func init() { child.Register(ChildName, proxyMain) }

// The child's own resources, beside Toxiproxy's.
const (
	faultPath   = "/netemd/fault"
	restartPath = "/netemd/restart"
)

// instance tells one start of the process from the next.
type instance struct {
	StartedUnixNS int64 `json:"started_unix_ns"`
}

func proxyMain(args []string) int {
	if err := serve(args); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		return 1
	}
	return 0
}

func serve(args []string) error {
	flags := flag.NewFlagSet(ChildName, flag.ContinueOnError)
	api := flags.String("api", "", "unix socket of the API")
	listen := flags.String("listen", "", "address to listen on")
	upstream := flags.String("upstream", "", "address to forward to")
	name := flags.String("name", "target", "name of the proxy")
	address := flags.String("serve", "", "TCP address of the API for clients")
	user := flags.String("user", "", "UID:GID to become")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *api == "" || *listen == "" || *upstream == "" {
		return errors.New("--api, --listen and --upstream are needed")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	// Toxiproxy warns of every connection that is cut, which is what it is here
	// for; only its errors are of interest. Some of its toxics use the global logger.
	zerolog.SetGlobalLevel(zerolog.WarnLevel)
	log := zerolog.New(os.Stderr).With().Timestamp().Logger()
	// A container of metrics without collectors: none are kept and none served.
	listener, err := listenAPI(*api)
	if err != nil {
		return err
	}
	var clients net.Listener
	if *address != "" {
		if clients, err = net.Listen("tcp", *address); err != nil {
			return err
		}
	}
	if err := become(*user, log); err != nil {
		return err
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), log.Level(zerolog.ErrorLevel))
	p := &proxy{
		server: server, turn: newTurn(), name: *name, listen: *listen, upstream: *upstream,
		log: log, startOver: func() error { return startOver(listener) }, limit: DefaultLimit,
	}
	if _, err := p.replace(order{Enabled: true}, anyEpoch); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		p.open("agent's end", anyEpoch)
	}()
	return p.serveAPI(ctx, listener, clients)
}

// serveAPI ends when ctx does, and takes the proxy with it.
func (p *proxy) serveAPI(ctx context.Context, listener, clients net.Listener) error {
	web := &http.Server{Handler: p.routes(), ReadHeaderTimeout: DefaultLimit}
	failed := make(chan error, 2)
	go func() { failed <- web.Serve(listener) }()
	if clients != nil {
		door := &http.Server{Handler: newFront(p), ReadTimeout: clientTime, WriteTimeout: 2 * clientTime, IdleTimeout: time.Minute}
		go func() { failed <- door.Serve(clients) }()
		defer func() { _ = door.Close() }()
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serve the API: %w", err)
	case <-ctx.Done():
	}
	err := web.Close() // removes the socket too
	stopped := make(chan error, 1)
	go func() { stopped <- p.server.Collection.Clear() }()
	select {
	case stop := <-stopped:
		return errors.Join(err, stop)
	case <-time.After(time.Second):
		return errors.Join(err, errors.New("stop: proxy control stuck"))
	}
}

func (p *proxy) routes() http.Handler {
	started := instance{StartedUnixNS: time.Now().UnixNano()}
	mux := http.NewServeMux()
	mux.Handle("/", p.server.Routes())
	mux.HandleFunc("PUT "+faultPath, func(w http.ResponseWriter, r *http.Request) {
		var o order
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&o)
		var done outcome
		if err == nil {
			done.Goroutines, err = p.replace(o, anyEpoch)
		}
		status := http.StatusBadRequest
		if errors.Is(err, errDisabled) {
			status = http.StatusConflict
		}
		answer(w, done, err, status)
	})
	mux.HandleFunc("GET "+faultPath, func(w http.ResponseWriter, _ *http.Request) {
		state, err := p.state()
		answer(w, state, err, http.StatusNotFound)
	})
	mux.HandleFunc("GET "+restartPath, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, started, nil, 0)
	})
	mux.HandleFunc("POST "+restartPath, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, nil, p.startOver(), http.StatusInternalServerError)
	})
	return mux
}

// answer writes v, or err in Toxiproxy's form.
func answer(w http.ResponseWriter, v any, err error, status int) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(status)
		v = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(v) // the client has gone: nobody to tell
}

// apiVariable names the environment variable with the descriptor of the API's socket
// that a process which started over goes on with: its user may not make it again.
const apiVariable = "NETEMD_PROXY_API"

// startOver executes this process anew with the same arguments. Every descriptor
// but the standard ones and the API's socket is closed by it, and with them all
// connections.
func startOver(api *net.UnixListener) error {
	f, err := api.File()
	if err != nil {
		return fmt.Errorf("start over: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("start over: %w", err)
	}
	env := append(os.Environ(), fmt.Sprintf("%s=%d", apiVariable, f.Fd()))
	err = syscall.Exec("/proc/self/exe", os.Args, env)
	_ = f.Close()
	return fmt.Errorf("execute /proc/self/exe: %w", err)
}

// listenAPI listens on path, or goes on with the socket of the time before.
func listenAPI(path string) (*net.UnixListener, error) {
	text, ok := os.LookupEnv(apiVariable)
	if !ok {
		return child.ListenUnix(path)
	}
	_ = os.Unsetenv(apiVariable)
	fd, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", apiVariable, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("go on with the API's socket: %w", err)
	}
	api, ok := l.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("go on with the API's socket: it is a %T", l)
	}
	api.SetUnlinkOnClose(true)
	return api, nil
}

// become gives up root's rights for those of user.
func become(user string, log zerolog.Logger) error {
	if user == "" || os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	const others = 0o005 // to read and to execute
	if info.Mode()&others != others {
		log.Warn().Msg("stays root: the file of the program is not for others to execute")
		return nil
	}
	return child.BecomeUser(user)
}
