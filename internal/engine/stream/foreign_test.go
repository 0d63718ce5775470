package stream

import (
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	toxiclient "github.com/Shopify/toxiproxy/v2/client"
	"github.com/rs/zerolog"

	"netemd/internal/child"
)

// foreignName is a Toxiproxy as anybody runs it, in a process of its own, which may hang.
const foreignName = "foreign-toxiproxy"

func init() {
	child.Register(foreignName, func(args []string) int {
		zerolog.SetGlobalLevel(zerolog.ErrorLevel)
		log := zerolog.New(io.Discard)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		if err := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), log).Listen(args[0]); err != nil {
			return 1
		}
		return 0
	})
}

// foreign is a Toxiproxy that somebody else runs.
type foreign struct {
	api    string
	client *toxiclient.Client
	cmd    *exec.Cmd
}

func startForeign(tb testing.TB) *foreign {
	tb.Helper()
	f := &foreign{api: freeAddress(tb)}
	f.client = toxiclient.NewClient(f.api)
	f.start(tb)
	return f
}

func (f *foreign) start(tb testing.TB) {
	tb.Helper()
	f.cmd = exec.Command("/proc/self/exe", child.Args(foreignName, f.api)...)
	f.cmd.Stderr = os.Stderr
	stdin, err := f.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	cmd := f.cmd
	tb.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(tb, 10*time.Second, func() error {
		c, err := net.Dial("tcp", f.api)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// proxy makes one of somebody else's.
func (f *foreign) proxy(tb testing.TB, name, upstream string) *toxiclient.Proxy {
	tb.Helper()
	p, err := f.client.CreateProxy(name, freeAddress(tb), upstream)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}
