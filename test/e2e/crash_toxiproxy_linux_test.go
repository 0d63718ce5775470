package e2e

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"netemd/internal/child"
	"netemd/internal/fault"
)

// toxiproxy makes faults on a Toxiproxy that outlives the agent, and takes them away. At the
// end of the test, after the recovery, everything there is as it was before.
func (p *play) toxiproxy() {
	dir, err := fragileProgram()
	if err != nil {
		p.t.Error(err)
		return
	}
	api, listen := p.free(), p.free()
	cmd := exec.Command(filepath.Join(dir, "netemd"), child.Args("proxy",
		"--api", filepath.Join(p.t.TempDir(), "api"), "--listen", p.free(), "--upstream", p.free(), "--serve", api)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Error(err)
		return
	}
	p.t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(patience(10 * time.Second)); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", api); err == nil {
			_ = c.Close()
			break
		} else if time.Now().After(end) {
			p.t.Error(err)
			return
		}
	}
	ask := func(method, path, body string) string {
		request, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+api+path, strings.NewReader(body))
		if err == nil {
			var answer *http.Response
			if answer, err = http.DefaultClient.Do(request); err == nil {
				defer answer.Body.Close()
				text, _ := io.ReadAll(answer.Body)
				return string(text)
			}
		}
		return err.Error()
	}
	ask("POST", "/proxies", `{"name": "redis", "listen": "`+p.free()+`", "upstream": "127.0.0.1:9"}`)
	ask("POST", "/proxies/redis/toxics", `{"name": "theirs", "type": "bandwidth", "attributes": {"rate": 100}}`)
	before := ask("GET", "/proxies", "")
	t := p.t
	defer func() {
		p.after = append(p.after, func() {
			if now := ask("GET", "/proxies", ""); now != before || !strings.Contains(before, "theirs") {
				t.Errorf("the Toxiproxy is not as before:\n%s\n%s", before, now)
			}
		})
	}()
	own := p.apply(fault.Spec{Target: "toxiproxy:" + listen + "=127.0.0.1:9@" + api, Engine: fault.Stream, Toxics: []fault.Toxic{
		{Kind: fault.Latency, Latency: time.Second}}, TTL: time.Minute})
	others := p.apply(fault.Spec{Target: "toxiproxy:redis@" + api, Engine: fault.Stream, Toxics: []fault.Toxic{
		{Kind: fault.Slicer, AverageSize: 9}, {Kind: fault.Down}}, TTL: time.Minute})
	p.clear(others)
	p.clear(own)
}

// free is an address of loopback that nobody listens on.
func (p *play) free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
