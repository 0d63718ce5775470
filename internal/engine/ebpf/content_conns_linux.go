package ebpf

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"netemd/internal/content"
	"netemd/internal/fault"
)

const (
	// connLocks is how many locks the connections of a rule share, a power of two.
	connLocks = 64
	// idleNodes is how many free entries of an LRU map one processor may keep from the
	// others (LOCAL_FREE_TARGET in kernel/bpf/bpf_lru_list.c); without as many more, some
	// connections were forgotten before there are content.MaxConnections.
	idleNodes = 128
)

// conns are the connections that a rule follows. Each rule has its own, so that one which
// is flooded with connections makes no other rule forget any.
type conns struct {
	// byKey has a conn for each connKey. Beyond its size the kernel forgets some that have
	// been quiet for long; they count anew, as those that were open before the rule.
	byKey *ebpf.Map
	// locks are what one processor at a time may hold of a connection's conn. The kernel
	// wants no lock in an LRU map (map_check_btf in kernel/bpf/syscall.c).
	locks *ebpf.Map
}

func newConns() (*conns, error) {
	byKey, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "netemd_conns", Type: ebpf.LRUHash,
		MaxEntries: content.MaxConnections + uint32(min(idleNodes*runtime.NumCPU(), content.MaxConnections)),
		KeySize:    uint32(unsafe.Sizeof(connKey{})), ValueSize: uint32(unsafe.Sizeof(connLayout)),
	})
	if err != nil {
		return nil, fmt.Errorf("create map netemd_conns: %w", err)
	}
	word := &btf.Int{Name: "u32", Size: 4}
	lock := &btf.Struct{Name: "bpf_spin_lock", Size: 4, Members: []btf.Member{{Name: "val", Type: word}}}
	locks, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "netemd_locks", Type: ebpf.Array, MaxEntries: connLocks, KeySize: 4, ValueSize: 4,
		Key: word, Value: &btf.Struct{Name: "conn_lock", Size: 4, Members: []btf.Member{{Name: "lock", Type: lock}}},
	})
	if err != nil {
		byKey.Close()
		return nil, fmt.Errorf("create map netemd_locks: %w", err)
	}
	return &conns{byKey: byKey, locks: locks}, nil
}

func (c *conns) close() error { return errors.Join(c.byKey.Close(), c.locks.Close()) }

// maxFollowing bounds the rules of an engine that follow connections, at all places: the
// kernel takes the whole of their memory at once, 3 MB each on up to 16 processors and
// twice as much at most.
const maxFollowing = 32

// follow counts one more rule that follows connections. The error is fault.ErrBusy.
func (r *ring) follow() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.following >= maxFollowing {
		return fmt.Errorf("%w: %d rules that follow connections (data, retransmit, and what counts for each connection) are in force, "+
			"one for each direction; at most %d can be at a time, since each takes 3 MB of the kernel's memory", fault.ErrBusy, r.following, maxFollowing)
	}
	r.following++
	return nil
}

func (r *ring) unfollow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.following--
}
