package netemtest

import (
	"fmt"
	"strings"
)

// fullServices gives the services of an outage the names by which the agent knows them: those
// of the test's own labs, and of the tests that it is a part of, come first. o is not changed.
func (c *scope) fullServices(o *Outage) (*Outage, error) {
	if o == nil {
		return nil, nil
	}
	full := *o
	full.Services = nil
	for _, name := range o.Services {
		key, err := c.fullService(name)
		if err != nil {
			return nil, err
		}
		full.Services = append(full.Services, key)
	}
	return &full, nil
}

// fullService is the name of one of them; one of no lab of the test's stays as it is.
func (c *scope) fullService(name string) (string, error) {
	scopesMu.Lock()
	defer scopesMu.Unlock()
	for _, c := range c.chain() {
		var found []string
		for _, n := range c.labs {
			if full, ok := n.serviceName(name); ok {
				found = append(found, full)
			}
		}
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return "", fmt.Errorf("service %q is in several labs of %s: say one of %s", name, c.t.Name(), strings.Join(found, ", "))
		}
	}
	return name, nil
}

// serviceName is the name by which the agent knows the lab's service.
func (n *Network) serviceName(name string) (full string, ok bool) {
	for _, node := range n.info.Nodes {
		for _, s := range node.Services {
			if key := n.name + "/" + s.Name; s.Name == name || key == name || n.info.Name+"/"+s.Name == name {
				return key, true
			}
		}
	}
	return "", false
}
