package probe

// Environment is what decides the timers of a run's TCP connections: what an expert asks
// for before he believes in a tail.
type Environment struct {
	// Kernel is the release of the host's kernel, which both ends share.
	Kernel string `json:"kernel"`
	// Client is the namespace in which the calls were made, Server the target's; nil where
	// that is not known, or could not be read.
	Client *NamespaceTCP `json:"client,omitempty"`
	Server *NamespaceTCP `json:"server,omitempty"`
	// Connections are the settings of the probe's own sockets, as the kernel gave them when
	// they had connected, with the number of connections that had each; at most 8. Others
	// counts the connections with other ones.
	Connections []ConnectionTCP `json:"connections,omitempty"`
	Others      int             `json:"other_connections,omitempty"`
}

// NamespaceTCP is what a namespace's sysctls and its route to the other end say, at the
// run's beginning. What the kernel does not have is null.
type NamespaceTCP struct {
	// SYNLinearTimeouts is how many timeouts of a SYN come 1 s apart before they double
	// (net.ipv4.tcp_syn_linear_timeouts, Linux 6.5); SYNRetries how often a SYN is sent
	// again, SYNACKRetries a SYN-ACK.
	SYNLinearTimeouts *int `json:"tcp_syn_linear_timeouts"`
	SYNRetries        *int `json:"tcp_syn_retries"`
	SYNACKRetries     *int `json:"tcp_synack_retries"`
	// EarlyRetransmit is net.ipv4.tcp_early_retrans: tail loss probes are sent where it is
	// 3 or 4.
	EarlyRetransmit *int `json:"tcp_early_retrans"`
	// Recovery is net.ipv4.tcp_recovery: RACK is on where it is odd.
	Recovery *int `json:"tcp_recovery"`
	// Retries1 and Retries2 are after how many timeouts of data the route is doubted, and the
	// connection given up (net.ipv4.tcp_retries1, tcp_retries2).
	Retries1 *int `json:"tcp_retries1"`
	Retries2 *int `json:"tcp_retries2"`
	// RTOMin is the least retransmission timeout in ms, and RTOMinFrom who says so: the
	// route to the other end, else the sysctl (net.ipv4.tcp_rto_min_us, Linux 6.11), else
	// the kernel (TCP_RTO_MIN, include/net/tcp.h).
	RTOMin     float64 `json:"rto_min_ms"`
	RTOMinFrom string  `json:"rto_min_from"`
	// Congestion is the congestion control that new connections to the other end begin with,
	// and CongestionFrom who says so: the route or the sysctl.
	Congestion     string `json:"congestion_control"`
	CongestionFrom string `json:"congestion_control_from"`
}

// The sources of a NamespaceTCP's values.
const (
	FromRoute  = "route"
	FromSysctl = "sysctl"
	FromKernel = "kernel"
)

// TLP reports whether tail loss probes are sent (net/ipv4/tcp_output.c,
// tcp_schedule_loss_probe).
func (n NamespaceTCP) TLP() bool {
	return n.EarlyRetransmit != nil && (*n.EarlyRetransmit == 3 || *n.EarlyRetransmit == 4)
}

// ConnectionTCP are a socket's own settings.
type ConnectionTCP struct {
	SocketSettings
	// Count is how many connections had them.
	Count int `json:"connections"`
}

// SocketSettings are what a socket was given or inherited.
type SocketSettings struct {
	// Congestion is its congestion control (TCP_CONGESTION).
	Congestion string `json:"congestion_control"`
	// UserTimeoutMS is TCP_USER_TIMEOUT; 0: none, tcp_retries2 decides.
	UserTimeoutMS int `json:"tcp_user_timeout_ms"`
	// KeepAlive says that keepalive probes are sent, after KeepIdle of silence, KeepInterval
	// apart, until KeepCount were not answered. Without it these are 0.
	KeepAlive    bool `json:"keepalive"`
	KeepIdle     int  `json:"tcp_keepidle_s,omitempty"`
	KeepInterval int  `json:"tcp_keepintvl_s,omitempty"`
	KeepCount    int  `json:"tcp_keepcnt,omitempty"`
	// NoDelay is TCP_NODELAY.
	NoDelay bool `json:"tcp_nodelay"`
}

// mostSettings bounds Environment.Connections.
const mostSettings = 8

// Connected counts a connection of the run.
func (e *Environment) Connected(s SocketSettings) {
	for i := range e.Connections {
		if e.Connections[i].SocketSettings == s {
			e.Connections[i].Count++
			return
		}
	}
	if len(e.Connections) == mostSettings {
		e.Others++
		return
	}
	e.Connections = append(e.Connections, ConnectionTCP{s, 1})
}
