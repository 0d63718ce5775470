package experiment

import (
	"fmt"

	"netemd/probe"
	"netemd/qdisc"
)

// CallWords says what one call of a request is: "a new connection and one prepared query".
func CallWords(r probe.Request) string {
	r = r.WithDefaults()
	switch r.Kind {
	case probe.KindTCP:
		return tcpWords(r.TCP)
	case probe.KindUDP:
		return fmt.Sprintf("a packet of %v there and back", qdisc.Bytes(r.UDP.Bytes))
	case probe.KindHTTP:
		return httpWords(r.HTTP)
	case probe.KindGRPC:
		return grpcWords(r.GRPC)
	}
	return postgresWords(r.Postgres)
}

func postgresWords(o probe.PostgresOptions) string {
	what := map[string]string{
		"call": "one prepared query", "connect": "", "query": "one simple query", "prepared": "one prepared query",
		"transaction": "a transaction",
	}[o.Mode]
	switch {
	case what == "":
		return "a new connection"
	case o.Pool > 0 && o.Mode != "call":
		return fmt.Sprintf("%s on one of %d kept connections", what, o.Pool)
	}
	return "a new connection and " + what
}

func tcpWords(o probe.TCPOptions) string {
	on := " on a new connection"
	if o.Keep {
		on = " on a kept connection"
	}
	switch o.Mode {
	case "echo":
		return fmt.Sprintf("%v there and back%s", qdisc.Bytes(o.Bytes), on)
	case "bulk":
		return fmt.Sprintf("%v to the server%s", qdisc.Bytes(o.Bytes), on)
	case "download":
		return fmt.Sprintf("%v from the server%s", qdisc.Bytes(o.Bytes), on)
	}
	return "a new connection"
}

func httpWords(o probe.HTTPOptions) string {
	words := fmt.Sprintf("%s %s by HTTP/%s", o.Method, o.Path, o.Version)
	if o.TLS {
		words += " with TLS"
	}
	if o.Bytes > 0 {
		words += fmt.Sprintf(", %v in its body,", qdisc.Bytes(o.Bytes))
	}
	if o.Keep {
		return words + " on a kept connection"
	}
	return words + " on a new connection"
}

func grpcWords(o probe.GRPCOptions) string {
	words := "a unary call"
	if o.Mode != "unary" {
		words = fmt.Sprintf("a %s of %d messages", map[string]string{
			"server_stream": "server's stream", "client_stream": "client's stream", "bidi": "stream both ways",
		}[o.Mode], o.Messages)
	}
	words += fmt.Sprintf(" of gRPC, %v a message,", qdisc.Bytes(o.Bytes))
	if o.New {
		return words + " on a new channel"
	}
	return words + " on one channel for all"
}
