#!/usr/bin/env python3
"""What jinja2 makes of chat templates, in the environment of Transformers: python3 chat_templates.py OUTDIR
OUTDIR/chat_templates.json: `cases` with template, names (what it is rendered with; keys of objects in sorted order, as a plain Lua table visits them; "<null>" is None) and
`text`, or `error` (the class that jinja2 raised). The templates are our own, in the formats of known chat models, beside one snippet for each rule."""
import json, os, sys

import jinja2, transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

CHATML = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages if message.role != 'system' %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>' ~ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
HEADERS = """{{- bos_token }}
{%- if tools is not none and tools is defined %}
{%- set has_tools = true %}
{%- else %}
{%- set has_tools = false %}
{%- endif %}
{#- the system text is taken out of the list #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if has_tools %}
    {{- "You may call:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
INST = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
TURNS = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""
THINK = """{%- set ns = namespace(last=-1, multi=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.last < 0 and message.role == "user" and message.content is string and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- macro render_content(content, upper=false) %}
    {%- if upper %}{{- content | upper }}{%- else %}{{- content }}{%- endif %}
{%- endmacro %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- set reasoning = '' %}
    {%- if '</think>' in content %}
        {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- if message.role == 'assistant' and loop.index0 > ns.last %}
        {{- '[' + message.role + ']<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n' + render_content(content, upper=true) }}
    {%- else %}
        {{- '[' + message.role + ']' + render_content(content) }}
    {%- endif %}
    {%- if message.tool_calls %}
        {%- for call in message.tool_calls %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {%- if call.function %}{%- set call = call.function %}{%- endif %}
            {{- '<tool_call>' + call.name + ' ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {%- for k, v in call.arguments.items() %}{{- ';' ~ k ~ '=' ~ v }}{%- endfor %}
        {%- endfor %}
    {%- endif %}
    {%- if loop.previtem and loop.previtem.role == message.role %}{{- '(again)' }}{%- endif %}
    {{- '|\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[assistant]' }}{% if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}
"""
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{% generation %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endgeneration %}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
"""
S = {"role": "system", "content": "  Be brief.\n"}
U = {"role": "user", "content": " What is 2+2? "}
A = {"role": "assistant", "content": "<think>\nadd\n</think>\n\nfour "}
TOOLS = [{"function": {"description": "weather \u00e9\u2603 \"q\" <b>", "name": "get", "parameters": {"properties": {"city": {"type": "string"}, "n": {"enum": [1, 2.5, True, None]}}, "required": ["city"], "type": "object"}}, "type": "function"}]
CALL = {"content": "", "role": "assistant", "tool_calls": [{"function": {"arguments": {"city": "Oslo", "n": 3}, "name": "get"}, "type": "function"}]}
RESULT = {"role": "tool", "content": {"t": [1, 2]}}
PARTS = {"role": "user", "content": [{"type": "image"}, {"text": " see this ", "type": "text"}]}
conversations = [[U], [S, U], [S, U, A, U], [U, A], [S, U, CALL, RESULT, A, U], [U, U], [PARTS], [S, PARTS, A], [A], []]

cases = []
def add(template, **names): cases.append((template, names))
for template in (CHATML, HEADERS, INST, TURNS, THINK, ZEPHYR):
    for i, messages in enumerate(conversations):
        for prompt in (False, True):
            names = dict(messages=messages, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>", tools=TOOLS if i % 2 else None)
            if i % 3 == 0: names["enable_thinking"] = False
            add(template, **names)

X = dict(n=7, f=2.5, s="Hello, W\u00f6rld \u2603", l=[3, 1, 2], d={"a": 1, "b": [1, {"c": None}]}, t=True, none=None, e=[], words=["b", "A", "c", "a"],
         people=[{"age": 31, "name": "Ann"}, {"age": 7, "name": "Bo"}, {"name": "Cy"}], text="a\n  b\n\nc", big=10**15)
EXPRESSIONS = r"""
n + 1|n - 10|n * 3|n / 2|n // 2|n % 4|-n // 2|-7 % 3|2 ** 10|2 ** -1|2 ** 3 ** 2|-n ** 2|n / 7|f * 2|f // 1|7.0|1e20|1.5e-7|0.1 + 0.2|1e15|1e16|123456789.125|n is odd
t + 1|t and n|e or 'x'|none or none|not e|n if t else f|n if e|(n if e) is defined|1 < 2 < 3|1 < 3 < 2|n == 7.0|t == 1|'a' < 'b'|[1, 2] < [1, 3]|(1, 2) == [1, 2]|[1] == [1]|d == {'a': 1}
s[0]|s[-1]|s[7:]|s[::-1]|s[1:9:2]|l[0]|l[-1]|l[5]|l[1:]|l[:-1]|l[::2]|d.a|d['b']|d.b[1].c|d.zz|d.get('a')|d.get('q', 5)|d.get('q')|d.items()|d.keys()|d|l|(1,)|(1, 2)|[]|{}|{'x': 1.0, 2: 'b'}|'it\'s'|["it's", 'a"b', 'both\'"']
s ~ n ~ none ~ t ~ f|'a' * 3|l * 2|l + [9]|3 * 'ab'|'a' 'b'|'\u00e9\x41\n\t\\'|'a' in s|'W' in s|3 in l|4 not in l|'a' in d|not 1 in l|n in [1, 7]
s|upper|lower|l|sort|l|sort(reverse=true)|words|sort|words|sort(case_sensitive=true)|l|join('-')|l|length|s|length|l|first|l|last|e|first|l|sum|l|max|l|min|words|unique|l|reverse|s|reverse|l|list
""".strip()
exprs = []
for line in EXPRESSIONS.split("\n")[:-1]:
    exprs += line.split("|")
exprs += [
    "s|upper", "s|lower", "l|sort", "l|sort(reverse=true)|join(',')", "words|sort", "words|sort(case_sensitive=true)", "l|join('-')", "l|length", "s|length", "l|first", "l|last", "e|first", "l|sum",
    "l|max", "l|min", "words|unique|list", "['a','A','b']|unique|list", "l|reverse|list", "s|reverse", "s|list|length", "d|dictsort", "d|items|list", "people|map(attribute='name')|join(' ')", "people|map(attribute='age', default=0)|list",
    "people|selectattr('age')|map(attribute='name')|list", "people|selectattr('age', 'gt', 10)|map(attribute='name')|list" if False else "people|selectattr('age', 'defined')|list|length", "people|rejectattr('age', 'defined')|map(attribute='name')|list", "people|selectattr('name', 'equalto', 'Bo')|list", "people|sort(attribute='name', reverse=true)|map(attribute='name')|list",
    "l|select('odd')|list", "l|reject('odd')|list", "l|select('gt', 1)|list", "words|map('upper')|list", "words|map('replace', 'a', 'z')|join", "zz|default('x')", "none|default('x')", "none|default('x', true)", "''|d('y', boolean=true)", "zz", "zz is defined", "zz is undefined", "zz is none", "none is none",
    "n is number", "t is number", "t is boolean", "n is integer", "f is float", "s is string", "l is iterable", "s is iterable", "n is iterable", "d is mapping", "l is sequence", "d is sequence", "n is divisibleby 7", "n is divisibleby(2)", "n is even", "'abc' is lower", "'ABC' is upper", "n is eq 7", "n is not eq 7", "n is ge 7", "n is in [7]", "range is callable", "n is sameas 7", "t is true", "t is false", "not n is odd",
    "'  x '|trim", "'xxaxx'|trim('x')", "'a-b'|capitalize", "'hello wORLD foo-bar'|title", "text|indent", "text|indent(2, true)", "text|indent(2, blank=true)", "text|indent('>>')", "'a,b,c'.split(',')", "' a  b '.split()", "'a b c'.split(' ', 1)", "'a b c'.rsplit(' ', 1)", "'a\\nb\\n'.splitlines()", "'xyx'.strip('x')", "'abc'.startswith(('x','a'))", "'abc'.endswith('bc')", "'aXbX'.replace('X', '-', 1)", "'aXbX'|replace('X', '-')", "'abc'.find('c')", "'\u00e9bc'.find('c')", "'abc'.find('z')", "'abcabc'.count('b')", "'-'.join(words)", "'abc'.title()", "'abc'.upper().lower()", "'12'.isdigit()", "'a1'.isalnum()", "'prefix-x'.removeprefix('prefix-')", "l.index(1)", "l.count(1)",
    "'3'|int", "'3.7'|int", "'x'|int", "'x'|int(9)", "3.9|int", "-3.9|int", "'1_000'|int", "'0x1f'|int(base=16)", "'2.5'|float", "'x'|float", "3|float", "3|string ~ 'x'", "2.5|round", "3.5|round", "2.567|round(2)", "2.1|round(method='ceil')", "2.9|round(0, 'floor')", "-3|abs", "'<a>&\"'|e", "'a b'|wordcount",
    "d|tojson", "d|tojson(indent=2)", "s|tojson", "s|tojson(ensure_ascii=true)", "l|tojson", "e|tojson(indent=2)", "f|tojson", "1e20|tojson", "'\\x01\\x7f\\n/</script>'|tojson", "d|tojson(separators=(',', ':'))", "{'b': 1, 'a': 2}|tojson", "{'b': 1, 'a': 2}|tojson(sort_keys=true)", "{1: 2, 'x': t}|tojson", "(1, 2)|tojson",
    "range(5)|list", "range(2, 5)|list", "range(5, 0, -2)|list", "range(0)|list", "dict(a=1, b='x')", "namespace(a=1).a", "(1, 2, 3)[1]", "[1, [2, 3]][1][0]", "{'a': {'b': 5}}.a.b", "{'a': 1}['a']", "d.items", "l.append(3)", "zz.a", "zz + 1", "1 + 'a'", "n()", "l|nofilter", "l is notest", "1 / 0", "1 % 0", "[] < {}", "raise_exception('stop')", "d.a.b", "d.a.b.c", "d['zz']['q']", "n.real", "s.nomethod()", "loop", "self is defined", "1 if", "(1", "[1, 2", "a b", "'abc", "{{ 1 }", "n | ", "1 +", "not", "is", "-", "''", "- - 3", "+3", "1.5.real" if False else "1.5|string", "true", "True", "none", "None", "false ~ False",
    "('a', 'b')|join", "l|map('string')|join('+')", "[1,2,3]|sum(start=10)", "people|sum(attribute='age') if false else 0", "[[1, 2], [3]]|sum(start=[])", "s|first", "''|last", "d|list", "d|length", "{'a':1}|first", "1 ~ 2 + 3", "1 + 2 ~ 3", "2 * 3 ~ 4", "(1 ~ 2)|int + 1", "n == 7 and s != '' or false", "not t or t", "not (t and e)", "1 in [1] == true", "(l|length > 2) ~ '!'", "l|length > 2", "l | length == 3 and s | length > 3",
]
for e in exprs:
    add("{{ " + e + " }}", **X)
STATEMENTS = [
    "a{% if t %}\nb\n{% endif %}\nc\n", "  {% if t %}x{% endif %}  \ny", "  {%- if t %}x{% endif -%}  \n y", "  {%+ if t %}x{%+ endif %}\n y", "{% if t +%}\nx{% endif %}", "a\n  {# note #}\nb", "a {#- note -#} b", "{{ 1 -}}   \n  {{- 2 }}", "{{ n }}\n{{ n }}\n", "x\n", "x\n\n", "\n{% if t %}\n\n{% endif %}\n",
    "{% raw %}{{ x }} {% if %}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b", "{% raw %}\nx{% endraw %}\ny",
    "{% for x in l %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.revindex0 }}:{{ x }};{% endfor %}", "{% for x in e %}x{% else %}none{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{% else %}none{% endfor %}", "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'h\u00e9y' %}{{ c }}.{% endfor %}", "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }} {% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in zz %}{% endfor %}ok", "{% for x in none %}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% if t %}{% set y = 5 %}{% endif %}{{ y }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}", "{% set x | upper | trim %} ab {% endset %}[{{ x }}]", "{% set d.x = 1 %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}", "{% break %}",
    "{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(a=5, c=7) }}{{ m() }}", "{% macro m(a) %}{{ n }}{{ a|default('z') }}{% endmacro %}{{ m() }}{{ m(1)|length }}", "{% macro m() %}{% endmacro %}{{ m(1) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=1) }}", "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|trim %} aaa {% endfilter %}", "{% generation %}x{% endgeneration %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in l %}{{ loop.previtem is defined }}{% endfor %}",
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}", "{% if n > 9 %}a{% elif n > 3 %}b{% else %}c{% endif %}", "{% if e %}a{% elif none %}b{% else %}c{% endif %}", "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{% nothing %}", "{% for x %}{% endfor %}", "{% for x in l %}{% endif %}", "{{ }}", "{% %}", "{# open", "{{ open", "{% raw %}x", "{% set %}", "{% set 1 = 2 %}", "{ not a tag } {", "}} %}", "{{ '{{' }}", "{{ '%}' }}{{ \"}}\" }}", "{{ {'a': {'b': 1}} }}", "{%- for m in people -%}\n  {{ m.name }}{{ ',' if not loop.last }}\n{%- endfor -%}\n",
    "line\n{%- if t %}\n  in\n{%- endif %}\nout", "{% if t %}\r\nx\r\n{% endif %}", "\t{% if t %}x{% endif %}", "a{% if t %}b{% endif %}\n\n", "{%   if   t   %}x{%endif%}", "{{n}}{{-n}}{{ n-1 }}{{n -1}}", "{{ 'a\nb' }}\n{% zz %}",
]
for t in STATEMENTS:
    add(t, **X)

def marked(x):  # nulls of objects would be lost
    if isinstance(x, dict): return {k: "<null>" if v is None else marked(v) for k, v in x.items()}
    return [marked(v) for v in x] if isinstance(x, list) else x

out = []
for template, names in cases:
    row = {"template": template, "names": marked(names)}
    try:
        row["text"] = _compile_jinja_template(template).render(**json.loads(json.dumps(names)))
        if "0x" in row["text"]:
            continue  # an address of Python
    except Exception as error:
        row["error"] = type(error).__name__
    out.append(row)
os.makedirs(sys.argv[1], exist_ok=True)
with open(os.path.join(sys.argv[1], "chat_templates.json"), "w") as f:
    text = json.dumps({"versions": {"jinja2": jinja2.__version__, "transformers": transformers.__version__}, "cases": out}, separators=(",", ":"))
    f.write(text.replace('{"template"', '\n{"template"') + "\n")
print(len(out), "cases,", sum("error" in r for r in out), "errors")
