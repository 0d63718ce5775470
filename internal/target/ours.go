package target

import (
	"regexp"
	"sync"
)

// ours are the names of the devices that the engines make: the TAP of a queue, and the
// ifbs and macvlans of netem, with eleven digits of a hash.
var ours = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(netemq[0-9]+|ntm[0-9a-f]{11})$`) })

// Ours reports whether a device has a name as netemd gives to what it makes beside the
// devices of others; nobody wants a fault there.
func Ours(device string) bool { return ours().MatchString(device) }
