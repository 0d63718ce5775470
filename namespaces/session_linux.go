package namespaces

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// How long an open namespace is kept for the next one who asks: sessionIdle after its last
// use, and sessionLook longer than its name stands for it. To open and to enter one anew
// costs about as much as all that is done inside for one change.
const (
	sessionIdle = time.Second
	sessionLook = 50 * time.Millisecond
)

// Session is an open namespace that those who use it at the same time, or soon after one
// another, share. It is let go a second after its last use, and where nobody uses it 50 ms
// after its name is gone or has become another namespace's, so that nothing of a deleted
// one lives on for long. It is safe for concurrent use.
type Session struct {
	ns     *Namespace
	own    *Namespace // where its threads return to
	id     identity
	cookie uint64

	// What follows is guarded by the lock of sessions.
	users int
	used  time.Time
	gone  bool // not to be found any more

	mu   sync.Mutex // of kept
	kept map[reflect.Type]io.Closer
}

// identity is unique among the namespaces that something holds.
type identity struct{ dev, inode uint64 }

var sessions struct {
	mu  sync.Mutex
	all map[string]*Session
}

// Share opens a namespace as Open does, or returns the one that is open already and that
// still has the name. The caller must Release it, soon.
func Share(name string) (*Session, error) {
	for {
		id, err := identify(name)
		if err == nil {
			if s := shared(name, id); s != nil {
				return s, nil
			}
		}
		s, err := openSession(name) // which says what is wrong with the name
		if s != nil || err != nil {
			return s, err
		}
	}
}

// shared returns the session that is there, and drops one of another namespace.
func shared(name string, id identity) *Session {
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	s := sessions.all[name]
	switch {
	case s == nil:
	case s.id == id:
		s.users++
		return s
	default:
		s.drop(name)
	}
	return nil
}

// openSession makes a session and puts it where others find it. It is nil without an error when
// somebody else was faster.
func openSession(name string) (*Session, error) {
	s := &Session{kept: map[reflect.Type]io.Closer{}, users: 1}
	if err := s.open(name); err != nil {
		s.close()
		return nil, err
	}
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	if sessions.all[name] != nil {
		s.close()
		return nil, nil //nolint:nilnil // the caller looks again
	}
	if sessions.all == nil {
		sessions.all = map[string]*Session{}
	}
	sessions.all[name] = s
	time.AfterFunc(sessionLook, func() { s.look(name) })
	return s, nil
}

func (s *Session) open(name string) (err error) {
	if s.ns, err = Open(name); err != nil {
		return err
	}
	if s.own, err = Open(""); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(s.ns.FD(), &st); err != nil {
		return fmt.Errorf("namespace open: %s: %w", label(name), err)
	}
	s.id = identity{st.Dev, st.Ino}
	s.cookie, err = s.ns.Cookie()
	return err
}

// identify looks at what has the name now.
func identify(name string) (identity, error) {
	path, err := Path(name)
	if err != nil {
		return identity{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return identity{}, err
	}
	return identity{st.Dev, st.Ino}, nil
}

// look lets go of a session whose time is over, or looks again later.
func (s *Session) look(name string) {
	id, err := identify(name)
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	switch {
	case s.gone:
	case err != nil || id != s.id, s.users == 0 && time.Since(s.used) > sessionIdle:
		s.drop(name)
	default:
		time.AfterFunc(sessionLook, func() { s.look(name) })
	}
}

// drop takes s away from where it is found; it closes with its last user. The caller has
// the lock.
func (s *Session) drop(name string) {
	if s.gone = true; sessions.all[name] == s {
		delete(sessions.all, name)
	}
	if s.users == 0 {
		s.close()
	}
}

// Release ends the caller's use; what it got from the session must not be used any more.
func (s *Session) Release() {
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	s.users--
	s.used = time.Now()
	if s.gone && s.users == 0 {
		s.close()
	}
}

// Spoil has the next one who asks open a session of his own: after an error nobody knows what
// is still on its way in a connection.
func (s *Session) Spoil() {
	sessions.mu.Lock()
	defer sessions.mu.Unlock()
	if !s.gone {
		s.drop(s.Name())
	}
}

// close is called once, when nobody has s.
func (s *Session) close() {
	for _, c := range s.kept {
		_ = c.Close()
	}
	for _, n := range []*Namespace{s.ns, s.own} {
		if n != nil {
			_ = n.Close()
		}
	}
}

// Name is the name that it was opened by; empty for the process's own.
func (s *Session) Name() string { return s.ns.Name() }

// FD is the descriptor of the nsfs file, valid until Release.
func (s *Session) FD() int { return s.ns.FD() }

// Cookie is the kernel's number of the namespace, as Namespace.Cookie returns it.
func (s *Session) Cookie() uint64 { return s.cookie }

// Do runs f inside, as Namespace.Do does.
func (s *Session) Do(ctx context.Context, f func() error) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("namespace enter: %s: %w", label(s.Name()), err)
	}
	return onThread(s.own.enter, func() error {
		if err := s.ns.enter(); err != nil {
			return err
		}
		return f()
	})
}

// Kept returns what the session keeps of type T, which dial opens inside the namespace where
// it is not there yet: a connection that all users share, and that is closed with the
// session.
func Kept[T io.Closer](ctx context.Context, s *Session, dial func() (T, error)) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := reflect.TypeFor[T]()
	if c, ok := s.kept[kind].(T); ok {
		return c, nil
	}
	var c T
	err := s.Do(ctx, func() (err error) {
		c, err = dial()
		return err
	})
	if err == nil {
		s.kept[kind] = c
	}
	return c, err
}

// links is an rtnetlink connection that closes as others do.
type links struct{ *netlink.Handle }

func (l links) Close() error {
	l.Handle.Close()
	return nil
}

// Links is an rtnetlink connection to the namespace, valid until Release.
func (s *Session) Links(ctx context.Context) (*netlink.Handle, error) {
	l, err := Kept(ctx, s, func() (links, error) {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return links{}, fmt.Errorf("rtnetlink dial: %w", err)
		}
		return links{h}, nil
	})
	return l.Handle, err
}

// Within shares the namespace of that name while f runs, which is not inside.
func Within(name string, f func(*Session) error) error {
	s, err := Share(name)
	if err != nil {
		return err
	}
	defer s.Release()
	return f(s)
}
