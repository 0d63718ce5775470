package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"netemd/internal/lab/service"
	"netemd/internal/target"
)

// unknownService is of the name of a service that no lab has. It matches target.ErrUnknown.
type unknownService struct{ text string }

func (u unknownService) Error() string          { return u.text }
func (u unknownService) Is(sentinel error) bool { return sentinel == target.ErrUnknown }

// FindService returns the one name, LAB/SERVICE, of a service of a lab that is up: by that, or
// by its own name where one lab alone has it. The error matches target.ErrUnknown and names the
// services that there are, or is ErrAmbiguous.
func (m *Manager) FindService(name string) (string, error) {
	of, short, full := strings.Cut(name, "/")
	if !full {
		of, short = "", name
	}
	var found, all []string
	for _, r := range m.all() {
		if m.why(r) != nil {
			continue
		}
		lab := r.record.Definition.Name
		for _, s := range r.record.Services {
			all = append(all, lab+"/"+s.Name)
			if s.Name == short && (!full || lab == of) {
				found = append(found, lab+"/"+s.Name)
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%w %q: there are the services %s", ErrAmbiguous, name, strings.Join(found, ", "))
	case len(all) == 0:
		return "", unknownService{fmt.Sprintf("unknown service %q: no lab with one is up", name)}
	}
	return "", unknownService{fmt.Sprintf("unknown service %q: known: %s", name, strings.Join(all, ", "))}
}

// serviceNamed returns the lab and the record of a service LAB/SERVICE.
func (m *Manager) serviceNamed(key string) (*running, serviceRecord, error) {
	lab, name, _ := strings.Cut(key, "/")
	r, err := m.get(lab)
	if err != nil {
		return nil, serviceRecord{}, err
	}
	for _, s := range r.record.Services {
		if s.Name == name {
			return r, s, nil
		}
	}
	return nil, serviceRecord{}, unknownService{fmt.Sprintf("unknown service %q", key)}
}

// Link opens a link to the keeper of a service LAB/SERVICE of a lab that is up, by which it is
// made to fail. One that has ended is fs.ErrNotExist.
func (m *Manager) Link(key string) (*service.Link, error) {
	r, s, err := m.serviceNamed(key)
	if err != nil {
		return nil, err
	}
	if err := m.why(r); err != nil {
		return nil, err
	}
	return service.Dial(s.Folder, s.Name)
}

// Refresh takes in what the keeper of a service LAB/SERVICE tells of it now: after an outage it
// has another process.
func (m *Manager) Refresh(key string) {
	r, s, err := m.serviceNamed(key)
	if err != nil {
		return // its lab has been taken down
	}
	state, err := service.ReadState(s.Folder, s.Name)
	if err != nil || state.Ended != nil { // which the watch tells
		return
	}
	r.services.set(s.Name, state)
}

// returnLimit bounds how long a service may take to be back that an earlier process made fail.
const returnLimit = 30 * time.Second

// comeBack waits until a service is back that was down when an earlier process ended: its keeper
// puts it back from then on.
func comeBack(ctx context.Context, rec *serviceRecord, state service.State) (service.State, error) {
	if state.Outage == "" || state.Ended != nil || !rec.Process.Alive() {
		return state, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, returnLimit, errors.New("not back after "+returnLimit.String()))
	defer cancel()
	failed := service.Return(ctx, rec.Folder, rec.Name)
	state, err := service.ReadState(rec.Folder, rec.Name)
	if err == nil && failed != nil && state.Ended == nil {
		err = fmt.Errorf("it was made to fail (%s), and is not back: %w", state.Outage, failed)
	}
	return state, err
}
