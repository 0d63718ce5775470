package stream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Remote sets toxics on the proxies of a Toxiproxy that somebody else runs. It needs no
// privilege but to reach the API, and is safe for concurrent use on different proxies.
//
// What it makes there bears the Tag: toxics on a proxy that is there, or a whole proxy of its
// own. It changes nothing else, and never calls /reset, which is about every proxy. A proxy
// of somebody else's keeps its connections and their toxics: the new ones are put behind
// those, on open connections, too. One of its own is made disabled, gets its toxics, and is
// enabled then, so that no connection escapes; changes cut its connections.
type Remote struct {
	// Tag tells what one agent made from all else; see Tag.
	Tag string
	// Life tells the agent's lives apart, in all that it makes; empty: it has one.
	Life string
	// Limit of every call; 0 means DefaultLimit.
	Limit time.Duration
	// Reach decides about an address of a proxy's API as it is connected to; nil allows
	// loopback alone. The addresses of names are asked for one by one.
	Reach func(target.Toxiproxy, netip.AddrPort) error
	// Watch is told what is to be taken away by whom, should this process end or its
	// deadline pass: before the first change, and with a zero deadline when nothing is
	// left. Nil is nobody.
	Watch func(ctx context.Context, p target.Toxiproxy, deadline time.Time, disabled bool) error

	mu    sync.Mutex
	known map[string]known // of proxies, by their text
}

// known is what is known of a proxy.
type known struct {
	// disabled says that a Down of ours disabled it, and it is of somebody else's.
	disabled bool
	// touched says that something of this life may be on it.
	touched bool
	// stuck is how its Toxiproxy hung, since when it has not answered; nil when it does.
	stuck *StuckError
}

// Tag is the mark of what the agent with that state folder makes on the Toxiproxies of
// others: the same after a restart, and another for other folders and machines.
func Tag(stateDir string) string {
	machine, err := os.ReadFile("/etc/machine-id") // machine-id(5)
	if err != nil {
		name, _ := os.Hostname()
		machine = []byte(name)
	}
	return "netemd-" + short(string(machine)+"\x00"+stateDir)
}

// short is 32 bits of a text: enough to tell the few that meet on one Toxiproxy.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// Mark begins the names of the toxics that r makes on p, and is the name of a proxy of its
// own. Two spellings of one proxy have two, and so do not undo one another.
func (r *Remote) Mark(p target.Toxiproxy) string { return r.Tag + "-" + short(r.Life+" "+p.String()) }

// name is the proxy's name in the API.
func (r *Remote) name(p target.Toxiproxy) string {
	if p.Name != "" {
		return p.Name
	}
	return r.Mark(p)
}

func (r *Remote) control(p target.Toxiproxy) control {
	limit := r.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	return control{socket: p.API, limit: limit, connect: func(ctx context.Context) (net.Conn, error) { return r.dial(ctx, p) }}
}

// dial connects to an API. The decision is about the address that is connected to, so that a
// name which turns round between two look-ups leads nowhere else.
func (r *Remote) dial(ctx context.Context, p target.Toxiproxy) (net.Conn, error) {
	if file, ok := strings.CutPrefix(p.API, "unix:"); ok {
		return (&net.Dialer{}).DialContext(ctx, "unix", file)
	}
	d := net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		switch {
		case err != nil:
			return err
		case r.Reach != nil:
			return r.Reach(p, at)
		case !at.Addr().Unmap().IsLoopback():
			return fmt.Errorf("%s is no loopback address", at)
		}
		return nil
	}}
	return d.DialContext(ctx, "tcp", p.API)
}

// wireProxy is a proxy as Toxiproxy's API has it.
type wireProxy struct {
	Name     string      `json:"name"`
	Listen   string      `json:"listen"`
	Upstream string      `json:"upstream"`
	Enabled  bool        `json:"enabled"`
	Toxics   []wireToxic `json:"toxics,omitempty"`
}

// proxies are all of the API at that address. What else may listen there is not told
// anything of: its answers are for nobody who asks by this way.
func (r *Remote) proxies(ctx context.Context, p target.Toxiproxy) (map[string]wireProxy, error) {
	var all map[string]wireProxy
	err := r.control(p).call(ctx, "GET", "/proxies", nil, &all)
	if err := foreignAnswer(p, "/proxies", err); err != nil {
		return nil, err
	}
	if err == nil && all == nil {
		return nil, noToxiproxy(p, "/proxies", "answers something else")
	}
	for name, one := range all {
		if one.Name != name || one.Upstream == "" {
			return nil, noToxiproxy(p, "/proxies", "answers something else")
		}
	}
	return all, err
}

func noToxiproxy(p target.Toxiproxy, path, how string) error {
	return fmt.Errorf("%s is no Toxiproxy: GET %s %s", p.API, path, how)
}

// foreignAnswer is for an error with words of who answered, which it leaves out; else nil.
func foreignAnswer(p target.Toxiproxy, path string, err error) error {
	syntax, typed := (*json.SyntaxError)(nil), (*json.UnmarshalTypeError)(nil)
	if e, ok := errors.AsType[*statusError](err); ok {
		return noToxiproxy(p, path, fmt.Sprintf("answers %d %s", e.status, http.StatusText(e.status)))
	}
	if errors.As(err, &syntax) || errors.As(err, &typed) {
		return noToxiproxy(p, path, "answers something else")
	}
	return nil
}

// find is the proxy as it is now, and asks for it alone: there may be thousands. The error
// matches fs.ErrNotExist where it, or the whole Toxiproxy, is not there.
func (r *Remote) find(ctx context.Context, p target.Toxiproxy) (wireProxy, error) {
	var one wireProxy
	err := r.control(p).call(ctx, "GET", r.path(p), nil, &one)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return wireProxy{}, &goneError{err}
	case answered(err, http.StatusNotFound):
		return wireProxy{}, r.notThere(ctx, p)
	}
	if err := foreignAnswer(p, r.path(p), err); err != nil {
		return wireProxy{}, err
	}
	if err == nil && (one.Name != r.name(p) || one.Upstream == "") {
		return wireProxy{}, noToxiproxy(p, r.path(p), "answers something else")
	}
	return one, err
}

// goneError is that nothing listens where a Toxiproxy was: it matches fs.ErrNotExist, too,
// whose words would be about a file.
type goneError struct{ err error }

func (e *goneError) Error() string   { return e.err.Error() }
func (e *goneError) Unwrap() []error { return []error{e.err, fs.ErrNotExist} }

// notThere says what a Toxiproxy has instead of p, once it is known to be one.
func (r *Remote) notThere(ctx context.Context, p target.Toxiproxy) error {
	all, err := r.proxies(ctx, p)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return &goneError{err}
	}
	if err != nil {
		return err
	}
	if p.Name == "" {
		return fmt.Errorf("the Toxiproxy at %s has lost the proxy %s that was made there: %w", p.API, r.name(p), fs.ErrNotExist)
	}
	names := slices.Sorted(maps.Keys(all))
	there := "it has none"
	if n := len(names); n > mostNames {
		there = fmt.Sprintf("it has %d, such as %s", n, strings.Join(names[:mostNames], ", "))
	} else if n > 0 {
		there = "it has " + strings.Join(names, ", ")
	}
	return fmt.Errorf("the Toxiproxy at %s has no proxy %q, %s: %w", p.API, p.Name, there, fs.ErrNotExist)
}

// mostNames are as many as an error names.
const mostNames = 20

// ours are the toxics of w that bear the mark.
func ours(w wireProxy, mark string) []wireToxic {
	var ts []wireToxic
	for _, t := range w.Toxics {
		if strings.HasPrefix(t.Name, mark+"-") {
			ts = append(ts, t)
		}
	}
	return ts
}

func (r *Remote) path(p target.Toxiproxy) string { return "/proxies/" + url.PathEscape(r.name(p)) }

func (r *Remote) toxicPath(p target.Toxiproxy, toxic string) string {
	return r.path(p) + "/toxics/" + url.PathEscape(toxic)
}

// Set makes toxics all that the agent does on p, until deadline, and reads back. No toxics
// at all is a Clear. When an invalid toxic (*qdisc.FieldError), a deadline in the past or a
// proxy that is not there (fs.ErrNotExist) is refused, nothing has changed; so with
// fault.ErrConflict for a proxy that somebody else disabled, through which nothing passes.
// After any other error p has been cleared, as far as that was possible.
func (r *Remote) Set(ctx context.Context, p target.Toxiproxy, toxics []fault.Toxic, deadline time.Time) error {
	if len(toxics) == 0 {
		return r.Clear(ctx, p)
	}
	for _, t := range toxics {
		if err := t.Validate(); err != nil {
			return fmt.Errorf("stream set: %w", err)
		}
		if t.Seed != 0 {
			return fmt.Errorf("stream set: %w", ErrSeed(t))
		}
	}
	if left := time.Until(deadline); left <= 0 {
		return fmt.Errorf("stream set: the deadline was %v ago", -left.Round(time.Millisecond))
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stream set: %w", context.Cause(ctx))
	}
	changed, err := r.set(ctx, p, toxics, deadline)
	if err != nil && changed {
		err = r.takeBack(context.WithoutCancel(ctx), p, err)
	}
	if err != nil {
		return fmt.Errorf("stream set: %w", err)
	}
	return nil
}

// takeBack clears p after a Set that failed in the middle: half a fault is worse than none.
func (r *Remote) takeBack(ctx context.Context, p target.Toxiproxy, err error) error {
	stuck, ok := errors.AsType[*StuckError](err)
	if !ok {
		return errors.Join(err, r.Clear(ctx, p))
	}
	// Asked like any other it would hang for as long again.
	return r.cleared(ctx, p, r.unstick(ctx, p, r.Mark(p), true, stuck))
}

// ErrSeed refuses a seed on a proxy of somebody else's.
func ErrSeed(t fault.Toxic) error {
	return &qdisc.FieldError{Field: "seed", Value: strconv.FormatUint(t.Seed, 10),
		Want: "a target with a proxy of netemd's: a Toxiproxy draws from a source of its own, which takes no seed"}
}

// set reports whether it has changed anything.
func (r *Remote) set(ctx context.Context, p target.Toxiproxy, toxics []fault.Toxic, deadline time.Time) (changed bool, err error) {
	want, enabled := toWire(toxics)
	for i := range want {
		want[i].Name = r.Mark(p) + "-" + want[i].Name
	}
	now, err := r.find(ctx, p)
	missing := errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED)
	switch {
	case err != nil && (p.Name != "" || !missing):
		return false, err
	case p.Name != "" && !now.Enabled && !r.knows(p).disabled:
		return false, fmt.Errorf("%w: %s is disabled, by somebody else: no connection passes it", fault.ErrConflict, p.Words())
	}
	if r.Watch != nil {
		if err := r.Watch(ctx, p, deadline, p.Name != "" && !enabled); err != nil {
			return false, err
		}
	}
	failpoint.At("toxiproxy.watched")
	r.note(p, func(k *known) { k.touched = true })
	if p.Name == "" {
		err = r.setOwn(ctx, p, now, want, enabled)
	} else {
		err = r.setOthers(ctx, p, now, want, enabled)
	}
	if err != nil {
		return true, err
	}
	got, err := r.read(ctx, p)
	if asked := fault.NormalizeToxics(toxics); err == nil && !slices.Equal(got, asked) {
		err = fmt.Errorf("read back: the proxy has %+v, asked for %+v", got, asked)
	}
	return true, err
}

// setOwn makes a proxy of our own anew, unless it is as it shall be.
func (r *Remote) setOwn(ctx context.Context, p target.Toxiproxy, now wireProxy, want []wireToxic, enabled bool) error {
	c := r.control(p)
	if now.Name != "" {
		if now.Enabled == enabled && now.Listen == p.Listen && now.Upstream == p.Upstream && sameToxics(now.Toxics, want) {
			return nil
		}
		if err := c.call(ctx, "DELETE", r.path(p), nil, nil); err != nil {
			return err
		}
		failpoint.At("toxiproxy.deleted")
	}
	made := wireProxy{Name: r.name(p), Listen: p.Listen, Upstream: p.Upstream}
	if err := c.call(ctx, "POST", "/proxies", made, nil); err != nil {
		return err
	}
	failpoint.At("toxiproxy.made")
	for _, t := range want {
		if err := c.call(ctx, "POST", r.path(p)+"/toxics", t, nil); err != nil {
			return err
		}
		failpoint.At("toxiproxy.toxic")
	}
	if !enabled {
		return nil
	}
	return r.enable(ctx, p, true)
}

// setOthers changes our toxics on a proxy of somebody else's: from the first one on that is
// another, or at another place in the chain, they are taken out and put in anew. Where only
// its values differ, a toxic is changed in place.
func (r *Remote) setOthers(ctx context.Context, p target.Toxiproxy, now wireProxy, want []wireToxic, enabled bool) error {
	c := r.control(p)
	for _, side := range []fault.StreamDirection{fault.Upstream, fault.Downstream} {
		is, shall := onSide(ours(now, r.Mark(p)), side), onSide(want, side)
		n := 0
		for ; n < len(is) && n < len(shall) && is[n].Name == shall[n].Name; n++ {
			if sameToxics(is[n:n+1], shall[n:n+1]) {
				continue
			}
			if err := c.call(ctx, "POST", r.toxicPath(p, shall[n].Name), shall[n], nil); err != nil {
				return err
			}
		}
		for _, t := range is[n:] {
			if err := r.remove(ctx, p, t.Name); err != nil {
				return err
			}
		}
		for _, t := range shall[n:] {
			if err := c.call(ctx, "POST", r.path(p)+"/toxics", t, nil); err != nil {
				return err
			}
			failpoint.At("toxiproxy.toxic")
		}
	}
	switch {
	case !enabled && now.Enabled:
		r.note(p, func(k *known) { k.disabled = true })
		return r.enable(ctx, p, false)
	case enabled && !now.Enabled: // by a Down of ours that is no more
		if err := r.enable(ctx, p, true); err != nil {
			return err
		}
		r.note(p, func(k *known) { k.disabled = false })
	}
	return nil
}

func (r *Remote) enable(ctx context.Context, p target.Toxiproxy, enabled bool) error {
	err := r.control(p).call(ctx, "POST", r.path(p), map[string]bool{"enabled": enabled}, nil)
	failpoint.At("toxiproxy.enabled")
	return err
}

// remove takes one toxic out; one that is not there any more is no error.
func (r *Remote) remove(ctx context.Context, p target.Toxiproxy, name string) error {
	err := r.control(p).call(ctx, "DELETE", r.toxicPath(p, name), nil, nil)
	if answered(err, http.StatusNotFound) {
		return nil
	}
	failpoint.At("toxiproxy.removed")
	return err
}

// Read returns what the agent does on p, as Engine.Read does; the toxics of others are not
// told. A proxy that somebody else disabled has a Down, too.
func (r *Remote) Read(ctx context.Context, p target.Toxiproxy) ([]fault.Toxic, error) {
	toxics, err := r.read(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("stream read: %w", err)
	}
	return toxics, nil
}

func (r *Remote) read(ctx context.Context, p target.Toxiproxy) ([]fault.Toxic, error) {
	now, err := r.find(ctx, p)
	if err != nil {
		return nil, err
	}
	return fromWire(ours(now, r.Mark(p)), now.Enabled), nil
}

func (r *Remote) knows(p target.Toxiproxy) known {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[p.String()]
}

func (r *Remote) note(p target.Toxiproxy, change func(*known)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[p.String()]
	change(&k)
	if r.known == nil {
		r.known = map[string]known{}
	}
	if r.known[p.String()] = k; k == (known{}) {
		delete(r.known, p.String())
	}
}

func onSide(ts []wireToxic, side fault.StreamDirection) []wireToxic {
	return slices.DeleteFunc(slices.Clone(ts), func(t wireToxic) bool { return t.Stream != string(side) })
}

// sameToxics compares by what the toxics mean: a float32 comes back otherwise.
func sameToxics(a, b []wireToxic) bool {
	return slices.EqualFunc(a, b, func(x, y wireToxic) bool { return x.Name == y.Name && decode(x) == decode(y) })
}
