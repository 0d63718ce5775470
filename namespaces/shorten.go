package namespaces

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// MaxDevice is the longest name of a network device in bytes (IFNAMSIZ of
// linux/if.h without the closing NUL).
const MaxDevice = 15

// Shorten returns name when it fits a network device, and else its first bytes, a
// dash and 6 characters of its hash: the same for the same name always, and 15 bytes
// long. Two names that differ collide with a chance of 2^-30.
func Shorten(name string) string {
	if len(name) <= MaxDevice {
		return name
	}
	const hashed = 6
	sum := sha256.Sum256([]byte(name))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:hashed])
	return name[:MaxDevice-hashed-1] + "-" + hash
}
