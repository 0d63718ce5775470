package client

import (
	"net"
	"strconv"

	"netemd/qdisc"
)

// DefaultSocket is where netemd listens unless told otherwise.
const DefaultSocket = "/run/netemd/netemd.sock"

// Endpoint says where an agent is. The zero value is DefaultSocket.
type Endpoint struct {
	// Socket is the path of its unix socket; empty means DefaultSocket.
	Socket string
	// Address is "HOST:PORT" of an agent that listens on TCP, instead of Socket. Such a
	// connection has mutual TLS 1.3.
	Address string
	// Certificate and Key are PEM files by which the client says who it is; they are read
	// anew for each connection. Both are needed with an Address.
	Certificate, Key string
	// CA is the PEM file with the authorities that the agent's certificate may be from;
	// empty means those of the system.
	CA string
	// ServerName is the name in the agent's certificate; empty means Address's host.
	ServerName string
}

// Validate returns a *qdisc.FieldError for what an agent cannot be reached by.
func (e Endpoint) Validate() error {
	if e.Address == "" {
		if e.Certificate != "" || e.Key != "" || e.CA != "" || e.ServerName != "" {
			return &qdisc.FieldError{Field: "address", Want: "HOST:PORT beside a certificate, which is for TCP"}
		}
		return nil
	}
	if e.Socket != "" {
		return &qdisc.FieldError{Field: "address", Value: e.Address, Want: "an address or a socket, not both"}
	}
	host, port, err := net.SplitHostPort(e.Address)
	if n, numErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || numErr != nil || n == 0 {
		return &qdisc.FieldError{Field: "address", Value: e.Address, Want: "HOST:PORT, such as ci.example:9526 or [::1]:9526"}
	}
	if e.Certificate == "" || e.Key == "" {
		return &qdisc.FieldError{Field: "address", Value: e.Address, Want: "a certificate and its key beside it: an agent on TCP takes nobody without"}
	}
	return nil
}

// String is how the agent is reached, for people.
func (e Endpoint) String() string {
	switch {
	case e.Address != "":
		return e.Address
	case e.Socket != "":
		return e.Socket
	}
	return DefaultSocket
}

// overTCP reports whether a broken connection may come back.
func (e Endpoint) overTCP() bool { return e.Address != "" }

// serverName is the name in the agent's certificate.
func (e Endpoint) serverName() string {
	if e.ServerName != "" {
		return e.ServerName
	}
	host, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		return e.Address
	}
	return host
}
