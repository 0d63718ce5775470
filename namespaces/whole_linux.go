package namespaces

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
)

// ErrTorn is a list of the kernel's that changed while it was given (NLM_F_DUMP_INTR of
// linux/netlink.h): it may lack what was there all the time.
var ErrTorn = netlink.ErrDumpInterrupted

// wholeLimit is how long a list is asked for that is torn each time: as long as somebody may
// take to make or remove a thousand devices on a busy machine. The pauses between two
// questions double up to wholePause.
const (
	wholeLimit = 5 * time.Second
	wholePause = 100 * time.Millisecond
)

// Whole asks for a list until it is not torn, for 5 s at most; the error is ErrTorn then, and
// the list's own else.
func Whole[T any](list func() (T, error)) (T, error) {
	for end, pause := time.Now().Add(wholeLimit), time.Millisecond; ; pause = min(2*pause, wholePause) {
		all, err := list()
		if !errors.Is(err, ErrTorn) {
			return all, err
		}
		if time.Now().After(end) {
			var none T
			return none, fmt.Errorf("it changed for %v, each time that it was asked for: %w", wholeLimit, err)
		}
		time.Sleep(pause)
	}
}
