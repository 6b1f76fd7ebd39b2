package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/config"
)

const (
	// healthWait is how long a process may take to answer unless --timeout says otherwise.
	healthWait = 5 * time.Second
	// healthAnswer is how many bytes of its reasons are printed.
	healthAnswer = 64 << 10
)

// healthCommand is for those who start and watch processes where there is no other
// program to ask with: container images, scripts.
func (p *program) healthCommand() *cobra.Command {
	var mode modeFlag
	var live bool
	var out output
	wait := healthWait
	c := &cobra.Command{
		Use: "health", Short: "Ask a process on this machine whether it is ready",
		Long: `Asks the admin port of a process on this machine whether it is ready, and prints why not when it is not. The port is found
as the process found it: by file, environment and flags, for the same --mode.

The exit code is 0 when it is ready, else 1. With --output json an object is printed in both cases: url is the page asked, ok is
true when it is ready, says has the reasons, a line for each, or why the process did not answer.`,
		Example: `  hardpoint health --mode broker --config /etc/hardpoint/broker.yaml
  hardpoint health --live --admin-listen 127.0.0.1:10919`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			groups, err := config.LoadGroups(config.Options{Mode: mode.mode, Env: os.Environ(), Flags: c.Flags(), NoStore: true})
			if err != nil {
				return err
			}
			address := groups[0].Config.Node.AdminListen // that of the process
			if address == config.AdminOff {
				return errors.New("adminListen is off: a process without an admin port cannot be asked")
			}
			page := "/readyz"
			if live {
				page = "/healthz"
			}
			ctx, cancel := context.WithTimeout(c.Context(), wait)
			defer cancel()
			url := "http://" + config.LocalOf(address) + page
			answer, err := askHealth(ctx, url)
			switch {
			case err != nil && out.json():
				answer = &healthReport{URL: url, Says: err.Error()}
			case err != nil:
				return err
			}
			return p.printHealth(answer, out.json())
		},
	}
	config.RegisterFlags(c.Flags())
	completeConfigFlags(c)
	mode.register(c)
	out.register(c)
	c.Flags().BoolVar(&live, "live", false, "ask only whether the process answers")
	c.Flags().Var(limitFlag{durationFlag{&wait}}, "timeout", "how long it may take to answer")
	return c
}

// healthReport is what a process says of itself, as `health` prints it in JSON.
type healthReport struct {
	URL string `json:"url"`
	// OK: it is ready, or with --live, it answers.
	OK bool `json:"ok"`
	// Says has a line for each reason; of a process that did not answer, why not.
	Says string `json:"says"`
}

// printHealth prints an answer; one that says no is a failure.
func (p *program) printHealth(r *healthReport, asJSON bool) error {
	switch {
	case asJSON:
		if err := p.printJSON(r); err != nil {
			return err
		}
		if !r.OK {
			return errReported
		}
		return nil
	case !r.OK:
		return errors.New(r.Says)
	}
	_, err := fmt.Fprintln(p.stdout, r.Says)
	return err
}

// askHealth gets a page of an admin port.
func askHealth(ctx context.Context, url string) (*healthReport, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy: the process is on this machine
	answer, err := direct.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w; is the process running, with this adminListen?", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, healthAnswer))
	if err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", url, err)
	}
	return &healthReport{URL: url, OK: answer.StatusCode == http.StatusOK, Says: strings.TrimSpace(string(text))}, nil
}
