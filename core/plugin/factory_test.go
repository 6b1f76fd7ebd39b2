package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

type thing interface{ Size() int }

type box struct{ n int }

func (b *box) Size() int { return b.n }

type config struct {
	Size int           `json:"size"`
	Key  plugin.Secret `json:"key"`
}

func (c *config) Validate() error {
	if c.Size < 1 {
		return fmt.Errorf("size is %d, it must be at least 1", c.Size)
	}
	return nil
}

func asThing(b *box) thing { return b }

func byValue() plugin.Factory[string, thing] {
	return plugin.NewFactory("box", "thing/1",
		func(c config) plugin.Description {
			return plugin.Description{Version: "1.2.3", LargestRecord: int64(c.Size), Facets: []string{"Lid"}}
		},
		func() config { return config{Size: 7} },
		func(_ context.Context, p string, c config) (*box, error) {
			if p == "fail" {
				return nil, errors.New("no cardboard")
			}
			if p == "nil" {
				return nil, nil
			}
			return &box{c.Size}, nil
		}, asThing)
}

func byPointer() plugin.Factory[string, thing] {
	return plugin.NewFactory("box", "thing/1",
		func(*config) plugin.Description { return plugin.Description{} },
		func() *config { return &config{Size: 7} },
		func(_ context.Context, _ string, c *config) (*box, error) { return &box{c.Size}, nil }, asThing)
}

func TestFactoryBuildsWithDefaultsAndConfig(t *testing.T) {
	for name, f := range map[string]plugin.Factory[string, thing]{"value": byValue(), "pointer": byPointer()} {
		t.Run(name, func(t *testing.T) {
			x, err := f.Build(t.Context(), "", nil)
			require.NoError(t, err)
			require.Equal(t, 7, x.Size())
			x, err = f.Build(t.Context(), "", plugin.Raw(` {"size": 3} `))
			require.NoError(t, err)
			require.Equal(t, 3, x.Size())
		})
	}
}

func TestFactoryRefusesBadConfig(t *testing.T) {
	for _, c := range []struct{ raw, says string }{
		{`{"sise": 3}`, "size, key"},
		{`{"size": "three"}`, "size is of the type string, it must be of the type integer"},
		{`{"size": 1.5}`, "size is 1.5, it must be an integer from -9223372036854775808 to 9223372036854775807"},
		{`{"key": [1]}`, "key is of the type array, it must be of the type string"},
		{`{"size": 0}`, "at least 1"},
		{`{"size": 1} {}`, "end of the object"},
		{`{"size": 1`, "EOF"},
		{`null`, "one JSON object"},
		{`[1]`, "one JSON object"},
	} {
		for name, f := range map[string]plugin.Factory[string, thing]{"value": byValue(), "pointer": byPointer()} {
			t.Run(name+c.raw, func(t *testing.T) {
				_, err := f.Describe(t.Context(), plugin.Raw(c.raw))
				require.ErrorIs(t, err, plugin.ErrConfig)
				require.ErrorContains(t, err, c.says)
				require.ErrorContains(t, err, `"box"`)
				_, err = f.Build(t.Context(), "", plugin.Raw(c.raw))
				require.ErrorIs(t, err, plugin.ErrConfig)
			})
		}
	}
}

func TestFactoryNamesWhoFailed(t *testing.T) {
	_, err := byValue().Build(t.Context(), "fail", nil)
	require.ErrorContains(t, err, "thing/1 box: no cardboard")
	require.NotErrorIs(t, err, plugin.ErrConfig)
}

func TestFactoryLetsNoTypedNilOut(t *testing.T) {
	x, err := byValue().Build(t.Context(), "nil", nil)
	require.Error(t, err)
	require.Nil(t, x)
}

func TestDescribe(t *testing.T) {
	d, err := byValue().Describe(t.Context(), plugin.Raw(`{"size":9}`))
	require.NoError(t, err)
	require.Equal(t, "box", d.Name)
	require.Equal(t, "thing/1", d.Contract)
	require.EqualValues(t, 9, d.LargestRecord)
	require.True(t, d.Has("Lid"))
	require.False(t, d.Has("Handle"))
	var schema struct {
		Properties map[string]struct {
			Type    string
			Default any
		}
	}
	require.NoError(t, json.Unmarshal(d.Schema, &schema))
	require.Equal(t, "integer", schema.Properties["size"].Type)
	require.EqualValues(t, 7, schema.Properties["size"].Default)
	require.Equal(t, "string", schema.Properties["key"].Type)
}

func TestSecretIsNeverPrinted(t *testing.T) {
	c := config{Key: "s3cret"}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", c.Key)
	text, err := json.Marshal(c)
	require.NoError(t, err)
	for _, out := range []string{fmt.Sprint(c.Key), fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Key), log.String(), string(text)} {
		require.NotContains(t, out, "s3cret")
		require.Contains(t, out, "******")
	}
	require.Equal(t, "s3cret", c.Key.Reveal())
	var back config
	require.NoError(t, json.Unmarshal([]byte(`{"key":"s3cret"}`), &back))
	require.Equal(t, "s3cret", back.Key.Reveal())
}

func TestSettingsWithDefaults(t *testing.T) {
	s := plugin.Settings{Name: "x"}.WithDefaults()
	require.NotNil(t, s.Logger)
	s.Meter.Counter("a", "b").Add(1)
	s.Meter.Histogram("a", "b").Observe(1)
	s.Meter.Gauge("a", "b", func() float64 { return 1 })()
	timer := s.Clock.NewTimer(0)
	<-timer.C()
	require.False(t, timer.Stop())
	require.False(t, s.Clock.Now().IsZero())
}
