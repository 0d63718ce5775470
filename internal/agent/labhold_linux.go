package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/lab"
	"netemd/internal/wire"
	"netemd/qdisc"
)

type labHoldStream = grpc.BidiStreamingServer[netemv1.LabUpRequest, netemv1.LabProgress]

// Hold keeps a lab as long as its stream, as a fault is kept by its. Nothing of it is in the
// kernel or on disk but the record's word that the lab was held: after a SIGKILL of the agent
// the next one takes it down.
func (s labsServer) Hold(stream labHoldStream) (err error) {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return &qdisc.FieldError{Field: "hold", Want: "a lab as the first message"}
	}
	if err != nil {
		return err
	}
	def, by, err := s.asked(stream.Context(), first)
	if err != nil {
		return err
	}
	s.a.holds.take(def.Name) // before the lab is made: who lets go of it meanwhile leaves it
	defer func() { err = errors.Join(err, s.a.letGo(stream.Context(), def.Name)) }()
	ctx, over := context.WithCancelCause(stream.Context())
	defer over(nil)
	go func() {
		for {
			if _, err := stream.Recv(); errors.Is(err, io.EOF) {
				over(errLeft)
				return
			} else if err != nil {
				over(err)
				return
			}
		}
	}()
	info, err := s.a.makeLab(ctx, def, by, s.a.labs.Hold, steps(stream))
	if err != nil {
		return err
	}
	if err := sendLab(stream, info, def); err != nil {
		return err
	}
	err = s.a.followLab(ctx, info, func(ended lab.ServiceInfo) error {
		return stream.Send(&netemv1.LabProgress{Ended: wire.LabService(ended)})
	})
	if errors.Is(err, errLeft) {
		return nil
	}
	return err
}

// followLab tells each service that ends by itself, until ctx ends, whose cause it returns, or
// the lab is taken down by others. A program of the user's that ends well is none.
func (a *Agent) followLab(ctx context.Context, was lab.Info, tell func(lab.ServiceInfo) error) error {
	told := map[string]bool{}
	for s := range endedServices(was) {
		told[s.Name] = true
	}
	for {
		now, changed, err := a.labs.Follow(was.Name)
		if err == nil && !now.Up.Equal(was.Up) {
			err = errors.New("another one is up")
		}
		if err != nil {
			return fmt.Errorf("lab %s was taken down while it was held: %w", was.Name, err)
		}
		for s := range endedServices(now) {
			if told[s.Name] {
				continue
			}
			told[s.Name] = true
			if s.Kind == lab.KindCommand && s.Status == endedWell {
				continue
			}
			if err := tell(s); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// endedWell is how a program says that it is done.
const endedWell = "exit status 0"

// endedServices are those that ended by themselves.
func endedServices(i lab.Info) func(yield func(lab.ServiceInfo) bool) {
	return func(yield func(lab.ServiceInfo) bool) {
		for _, n := range i.Nodes {
			for _, s := range n.Services {
				if !s.Ended.IsZero() && !yield(s) {
					return
				}
			}
		}
	}
}

// letGo is the end of a client's hold on a lab, after ctx's end, too. The last one's takes it
// down where it was held, and has its servers do what it says where it stays. When the agent
// stops its labs are taken down anyway.
func (a *Agent) letGo(ctx context.Context, name string) error {
	last, set := a.holds.leave(name)
	if !last || a.closing.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), labStopTime, errors.New("taking the lab down took too long"))
	defer cancel()
	info, err := a.labs.Get(ctx, name)
	if errors.Is(err, lab.ErrUnknown) {
		return nil // it was never made, or others took it down
	}
	if err != nil {
		return err
	}
	if !info.Held {
		return a.ownSettings(ctx, name, set)
	}
	a.cfg.Log.Info("taking a lab down that nobody holds any more", "lab", name)
	return a.downHeld(ctx, info)
}

// downHeld takes a lab down, with the faults on it, unless somebody has come to hold it, or to
// have it stay.
func (a *Agent) downHeld(ctx context.Context, i lab.Info) error {
	return a.leases.Retire(ctx, append(targetKeys(i), serviceKeys(i)...), func(ctx context.Context) error {
		_, err := a.labs.DownHeld(ctx, i.Name, func() bool { return !a.holds.held(i.Name) })
		return err
	})
}

// ownSettings has servers of a lab do again what it says; one that is gone has none.
func (a *Agent) ownSettings(ctx context.Context, name string, services []string) error {
	var errs []error
	for _, s := range services {
		key := name + "/" + s
		text, err := a.labs.OwnSettings(key)
		if err == nil {
			_, err = a.labs.Server(ctx, key, text, false)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("settings of %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// labHolds are the clients that hold labs, by the labs' names. The zero value is ready, and
// safe for concurrent use.
type labHolds struct {
	mu  sync.Mutex
	all map[string]*labHold
}

// labHold is how many hold a lab, and which of its servers were set meanwhile.
type labHold struct {
	clients int
	set     []string
}

func (h *labHolds) take(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[string]*labHold{}
	}
	if h.all[name] == nil {
		h.all[name] = &labHold{}
	}
	h.all[name].clients++
}

// leave says whether nobody holds the lab any more, and which servers were set while somebody
// did and not set back.
func (h *labHolds) leave(name string) (last bool, set []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.all[name]
	if l.clients--; l.clients > 0 {
		return false, nil
	}
	delete(h.all, name)
	return true, l.set
}

func (h *labHolds) held(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[name] != nil
}

// note keeps that a server has other settings than its lab says, or has these again.
func (h *labHolds) note(name, service string, own bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.all[name]
	if l == nil {
		return
	}
	l.set = slices.DeleteFunc(l.set, func(s string) bool { return s == service })
	if !own {
		l.set = append(l.set, service)
	}
}
