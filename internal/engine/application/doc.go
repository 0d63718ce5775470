// Package application carries out faults of requests: errors, delays and resets of a share of the
// requests that pass a reverse proxy for HTTP in front of a target.
//
// # The proxy
//
// It is a child process of the agent's in the target's node, and takes HTTP/1.1 and HTTP/2 without
// TLS (by prior knowledge), so gRPC, too. Each connection of a client has one of its own to the
// upstream, made with its first request and closed with it; what comes by HTTP/2 goes on by HTTP/2.
// No request is ever sent twice. Bytes of a body go on as they come, with nothing added, and a
// client that goes is gone for the server at once. Fields of one hop alone (RFC 9110, section 7.6.1)
// are the proxy's own; all others pass, and none is added. An upstream that refuses connections
// is a 502, or UNAVAILABLE to a gRPC call; one that breaks off breaks the client off: an HTTP/1.1
// connection is closed, a stream gets RST_STREAM with INTERNAL_ERROR, whatever the code was.
//
// # The rules
//
// Each fault is a rule with a draw and counters of its own. They stand one behind the other,
// oldest first: what one answers or resets, the next does not see, and what one holds, the
// next sees after that. A request that is held goes on as soon as its rule ends; one whose client
// has gone ends, and the server never sees it. (By HTTP/1.1, a client whose body is longer than what
// the kernel takes of it, some hundred kB, is not seen to go before it is due.)
//
// The child serves an API on a unix socket (mode 0600). A PUT of /rules replaces all rules in one
// step, and those that stay as they are keep their counters. Each rule ends in the child at its deadline; all of
// them when the agent does, whose end the child sees on its standard input; and what comes while the agent has not asked
// for 5 s (it looks twice a second), because it is stopped, passes as if there were no rule.
package application
