package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// The environment variables that say where the agent is, unless a flag does.
const (
	envSocket     = "NETEMD_SOCKET"
	envAddress    = "NETEMD_ADDRESS"
	envTLSCert    = "NETEMD_TLS_CERT"
	envTLSKey     = "NETEMD_TLS_KEY"
	envTLSCA      = "NETEMD_TLS_CA"
	envServerName = "NETEMD_TLS_SERVER_NAME"
)

// endpointFlags are the flags of every command that say where the agent is.
func (a *app) endpointFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.at.Socket, "socket", "", "unix socket `PATH` of the agent (default $"+envSocket+", or "+client.DefaultSocket+")")
	f.StringVar(&a.at.Address, "address", "", "`HOST:PORT` of an agent on TCP, instead of --socket (default $"+envAddress+")")
	f.StringVar(&a.at.Certificate, "tls-cert", "", "`FILE` with the certificate to show to --address (default $"+envTLSCert+")")
	f.StringVar(&a.at.Key, "tls-key", "", "`FILE` with its key (default $"+envTLSKey+")")
	f.StringVar(&a.at.CA, "tls-ca", "", "`FILE` with the authorities of the agent's certificate (default $"+envTLSCA+", or the system's)")
	f.StringVar(&a.at.ServerName, "tls-server-name", "", "`NAME` in the agent's certificate (default $"+envServerName+", or HOST)")
}

// endpoint is where the agent is, by the flags and what is left to the environment.
func (a *app) endpoint() (client.Endpoint, error) {
	e := a.at
	if e.Socket != "" && e.Address != "" {
		return e, usageError{errors.New("want one of --socket and --address, not both")}
	}
	if e.Socket == "" && e.Address == "" {
		e.Socket, e.Address = a.env.Getenv(envSocket), a.env.Getenv(envAddress)
		if e.Socket != "" && e.Address != "" {
			return e, fault.WithHint(usageError{fmt.Errorf("want one of the variables %s and %s, not both", envSocket, envAddress)}, "--socket or --address says which")
		}
	}
	if e.Address != "" {
		for _, v := range []struct {
			value *string
			name  string
		}{{&e.Certificate, envTLSCert}, {&e.Key, envTLSKey}, {&e.CA, envTLSCA}, {&e.ServerName, envServerName}} {
			if *v.value == "" {
				*v.value = a.env.Getenv(v.name)
			}
		}
	}
	return e, namedEndpoint(e.Validate())
}

// namedEndpoint gives what is wrong with an endpoint the name of the flag.
func namedEndpoint(err error) error {
	var f *qdisc.FieldError
	if !errors.As(err, &f) {
		return err
	}
	flag := *f
	flag.Field = "--" + f.Field
	return fault.WithHint(&flag, "see 'netemctl --help': --tls-cert, --tls-key, --tls-ca")
}

func (a *app) dial() (Agent, error) {
	e, err := a.endpoint()
	if err != nil {
		return nil, err
	}
	agent, err := a.env.Dial(e)
	if errors.Is(err, client.ErrUnreachable) {
		err = fault.WithHint(err, "start it with: netemd")
	}
	return agent, err
}
