// Package content chooses packets by what they are: the first SYN, the third data
// segment of a connection, every hundredth packet, or what an expression says. A fault
// made of such a rule does exactly the same thing each time, where a share of lost
// packets is left to chance.
//
// # Counting
//
// Data segments are counted by sequence number, for each connection and direction by
// itself: a connection is the two addresses, the protocol and the two ports, and begins
// anew with a SYN of another sequence number. Of a connection that was open before the
// rule came, the first segment that is seen counts as the first; so it does of one that
// was forgotten, of more than MaxConnections at a place. What fills a gap counts as one
// more; of several gaps at a time the last is known.
//
// With segmentation offload a packet stands for several on the wire. It counts for as
// many as it stands for, it is chosen whole when one of them would be, and its Record
// says how many they were; towards Count it is one.
//
// # Expressions
//
// An expression is written as in Go: && || ! and parentheses join conditions; ==
// != < <= > >= compare numbers, which are fields, constants (20, 0x14, 'Q') and sums of
// them by + - & |. A field that is a condition, such as tcp.syn, is 0 or 1 as a
// number.
//
//	ip4 ip6 tcp udp icmp           what the packet is; icmp is ICMP or ICMPv6
//	ip.len ip.ttl ip.dscp ip.ecn   the whole IP packet's bytes; TTL or hop limit
//	ip.id ip.proto ip.frag         ip.id is of IPv4 alone; ip.frag says a fragment
//	tcp.syn tcp.ack tcp.fin tcp.rst tcp.psh tcp.urg tcp.flags
//	tcp.seq tcp.ackseq tcp.window tcp.len tcp.srcport tcp.dstport
//	udp.len udp.srcport udp.dstport
//	icmp.type icmp.code
//	payload.len                    bytes behind the TCP or UDP header, as tcp.len, udp.len
//	payload[5]                     one of these bytes, from 0
//	payload.at(0, "Q")             whether they are these from there on; 0x51 for bytes
//
// A field that the packet does not have, such as tcp.seq of a UDP packet or a byte
// behind the end of the payload, makes the comparison that it stands in false, != too.
// So !(tcp.window > 0) chooses every UDP packet, and tcp.window == 0 none.
package content
