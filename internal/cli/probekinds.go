package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/probe"
	"netemd/qdisc"
)

// The upper bounds of the kinds' sizes; probe.Request says them.
const (
	maxTCPBytes     = 1 << 30
	minUDPBytes     = 52
	maxUDPBytes     = 65_000
	maxHTTPBytes    = 64 << 20
	maxGRPCBytes    = 4 << 20
	maxGRPCMessages = 1_000_000
)

// kind is one kind of probe as a command.
type kind struct {
	// name is probe.Request's, example the target of the usage's example.
	name, example, short, long string
	// options adds the flags of that kind alone, which fill its part of the request.
	options func(cmd *cobra.Command, r *probe.Request)
}

// kinds are in the order in which they are told.
var kinds = []kind{
	{probe.KindPostgres, "pg", "PostgreSQL: connect, queries and transactions",
		`Call a PostgreSQL from where the target's clients are. A call is a new connection with
one prepared query, or what --mode says.`, postgresOptions},
	{probe.KindTCP, "tcp", "TCP: connect, echo, and goodput",
		`Connect to a TCP server from where the target's clients are. Echo, bulk and download
need the server of a lab's kind 'echo'.`, tcpOptions},
	{probe.KindUDP, "udp", "UDP: loss, order, duplicates and one-way delay",
		`Send numbered packets to a lab's server of the kind 'echo', which stamps them. A call is
one packet, there and back.`, udpOptions},
	{probe.KindHTTP, "http", "HTTP/1.1 and 2: one request each",
		`Make HTTP requests from where the target's clients are, each on a new connection unless
--keep is given.`, httpOptions},
	{probe.KindGRPC, "grpc", "gRPC: unary calls and streams",
		`Call a lab's server of the kind 'grpc-echo', on one channel unless --new is given.`, grpcOptions},
}

func postgresOptions(cmd *cobra.Command, r *probe.Request) {
	o := &r.Postgres
	o.Mode = "call"
	one(cmd, &o.Mode, "mode", "connect and query; connect alone; a simple query; a prepared one; begin, query and commit",
		"call", "connect", "query", "prepared", "transaction")
	cmd.Flags().Var(typed(&o.Pool, "N", integer(0, probe.MaxPool), nil), "pool", "kept connections that the calls share; 0, the default: a new one for each call")
	cmd.Flags().Var(once(&o.Query, "SQL", "a query with one row and one value"), "query", `query with one row and one value, read-only unless --write is given (default "select 1")`)
	cmd.Flags().BoolVar(&o.Write, "write", false, "the query may change something; a policy may not retry or hedge it")
	cmd.Flags().BoolVar(&o.Idempotent, "idempotent", false, "beside --write: the query may be made more than once, so that a policy may retry and hedge it")
}

func tcpOptions(cmd *cobra.Command, r *probe.Request) {
	o := &r.TCP
	o.Mode = "connect"
	one(cmd, &o.Mode, "mode", "connect alone; bytes there and back; bytes to the server; bytes from it", "connect", "echo", "bulk", "download")
	bytesFlag(cmd, &o.Bytes, 1, maxTCPBytes, "payload (default 64B for echo, 1MiB for bulk and download)")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "one connection for all calls that follow one another; not with connect")
}

func udpOptions(cmd *cobra.Command, r *probe.Request) {
	bytesFlag(cmd, &r.UDP.Bytes, minUDPBytes, maxUDPBytes, "payload (default 64B)")
}

func httpOptions(cmd *cobra.Command, r *probe.Request) {
	o := &r.HTTP
	o.Version = "1.1"
	one(cmd, &o.Version, "http", "version of HTTP; 2 without TLS is by prior knowledge", "1.1", "2")
	cmd.Flags().Var(once(&o.Method, "METHOD", "a method such as GET or POST"), "method", "method (default GET)")
	cmd.Flags().Var(once(&o.Path, "PATH", "a path that begins with /"), "path", "path of the request (default /)")
	bytesFlag(cmd, &o.Bytes, 0, maxHTTPBytes, "body of the request (default none)")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "use connections again")
	cmd.Flags().Var(typed(&o.ReadTimeout, "TIME", positive, none), "read-timeout", "budget of every single read of the answer, beside --timeout")
	cmd.Flags().BoolVar(&o.TLS, "tls", false, "encrypt; the server's certificate is not checked")
}

func grpcOptions(cmd *cobra.Command, r *probe.Request) {
	o := &r.GRPC
	o.Mode = "unary"
	one(cmd, &o.Mode, "mode", "form of a call", "unary", "server_stream", "client_stream", "bidi")
	cmd.Flags().Var(typed(&o.Messages, "N", integer(1, maxGRPCMessages), nil), "messages", "messages of a stream (default 10)")
	bytesFlag(cmd, &o.Bytes, 0, maxGRPCBytes, "payload of each message (default 64B)")
	cmd.Flags().BoolVar(&o.New, "new", false, "a channel for each call")
}

// bytesFlag is an amount with its unit.
func bytesFlag(cmd *cobra.Command, dst *int, least, most int, usage string) {
	parse := func(s string) (int, error) {
		b, err := qdisc.ParseBytes(s)
		if err != nil || int64(b) < int64(least) || int64(b) > int64(most) {
			return 0, &qdisc.FieldError{Value: s, Want: fmt.Sprintf("an amount from %v to %v with its unit, such as 1KiB", qdisc.Bytes(least), qdisc.Bytes(most))}
		}
		return int(b), nil
	}
	cmd.Flags().Var(typed(dst, "BYTES", parse, nil), "bytes", usage)
}

// calls says what a request asks for, in a few words.
func callsText(r probe.Request) string {
	var parts []string
	if r.Count > 0 {
		parts = append(parts, fmt.Sprintf("%d calls", r.Count))
	}
	if l := r.Length(); l > 0 {
		parts = append(parts, qdisc.FormatDuration(l.Round(time.Millisecond)))
	}
	return strings.Join(parts, ", at most ")
}
