package application

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
	"syscall"
	"time"

	"netemd/internal/child"
)

// ChildName is the name of the proxy among the agent's children. Its arguments:
//
//	--api PATH        the unix socket of its API; a stale one is replaced
//	--listen ADDR     where clients connect, such as 10.77.0.2:8080
//	--upstream ADDR   where it forwards to
//	--user UID:GID    whom it becomes once it listens
//
// Its standard input is the agent's lifeline: when that ends, the proxy forwards all requests as they
// are. SIGTERM and SIGINT end it.
const ChildName = "http-proxy"

func init() { child.Register(ChildName, proxyMain) }

func proxyMain(args []string) int {
	if err := runProxy(args); err != nil {
		fmt.Fprintln(os.Stderr, ChildName+":", err)
		return 1
	}
	return 0
}

func runProxy(args []string) error {
	flags := flag.NewFlagSet(ChildName, flag.ContinueOnError)
	api := flags.String("api", "", "unix socket of the API")
	at := flags.String("listen", "", "address to listen on")
	address := flags.String("upstream", "", "address to forward to")
	user := flags.String("user", "", "UID:GID to become")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *api == "" || *at == "" || *address == "" {
		return errors.New("--api, --listen and --upstream are needed")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	orders, err := child.ListenUnix(*api)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", *at)
	if err != nil {
		return err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("%s is no address of TCP", *at)
	}
	if *user != "" && os.Geteuid() == 0 {
		if err := child.BecomeUser(*user); err != nil {
			return err
		}
	}
	r := &rules{}
	control := &http.Server{Handler: routes(r), ReadHeaderTimeout: callLimit}
	defer func() { _ = control.Close() }() // takes its socket away, too
	go func() { _ = control.Serve(orders) }()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		r.set(nil)
	}()
	return serve(ctx, tcp, *address, r)
}

// rulesPath is the one resource of the API: a PUT replaces the rules, both answer with those that
// are in force.
const rulesPath = "/rules"

func routes(r *rules) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+rulesPath, func(w http.ResponseWriter, _ *http.Request) {
		r.hear()
		tell(w, r)
	})
	mux.HandleFunc("PUT "+rulesPath, func(w http.ResponseWriter, q *http.Request) {
		var want []Rule
		if err := json.NewDecoder(http.MaxBytesReader(w, q.Body, 1<<24)).Decode(&want); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for _, x := range want {
			if err := x.Request.Validate(); err != nil {
				http.Error(w, x.ID+": "+err.Error(), http.StatusBadRequest)
				return
			}
			if time.Until(time.Unix(0, x.DeadlineUnixNS)) <= 0 {
				http.Error(w, x.ID+": the deadline is past", http.StatusBadRequest)
				return
			}
		}
		r.hear()
		r.set(want)
		tell(w, r)
	})
	return mux
}

func tell(w http.ResponseWriter, r *rules) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(r.states()) // the agent has gone: nobody to tell
}
