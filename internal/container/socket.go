package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// What one socket may take: the time to its answer, and the bytes of that.
const (
	socketTime  = time.Second
	socketBytes = 8 << 20
)

// sockets are where the Docker-compatible API may be: what DOCKER_HOST says, else Docker's
// and Podman's own places.
func sockets() []string {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		if path, ok := strings.CutPrefix(host, "unix://"); ok {
			return []string{path}
		}
		return nil // over the network are other hosts' containers
	}
	return []string{"/run/docker.sock", "/run/podman/podman.sock"}
}

// known is a container as a socket tells of it.
type known struct {
	ID    string   `json:"Id"`
	Names []string `json:"Names"`
	State string   `json:"State"`
}

// name is the first, without the slash that Docker puts before it.
func (k known) name() string {
	if len(k.Names) == 0 {
		return ""
	}
	return strings.TrimPrefix(k.Names[0], "/")
}

// ask asks all sockets at the same time. Where one exists and gives no answer the error says
// so, beside what the others know.
func ask(ctx context.Context, paths []string) (all []known, err error) {
	var mu sync.Mutex
	var errs []error
	var asking sync.WaitGroup
	for _, path := range paths {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue
		}
		asking.Go(func() {
			got, err := list(ctx, path)
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, got...), append(errs, err)
		})
	}
	asking.Wait()
	return all, errors.Join(errs...)
}

// list is GET /containers/json of the Docker Engine API, which Podman answers, too; without a
// version in the path the newest that the engine has.
func list(ctx context.Context, path string) ([]known, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, socketTime, fmt.Errorf("no answer within %v", socketTime))
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/containers/json?all=1", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("container names: %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("container names: %s: %s", path, resp.Status)
	}
	var all []known
	if err := json.NewDecoder(io.LimitReader(resp.Body, socketBytes)).Decode(&all); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("container names: %s: %w", path, err)
	}
	return all, nil
}
