;;; emacs-dape.el --- accel's debug adapter for dape  -*- lexical-binding: t -*-
;; dape (github.com/svaante/dape): M-x dape, then accel, accel-ranks or accel-attach.
(with-eval-after-load 'dape
  (add-to-list 'dape-configs
               '(accel modes (lua-mode lua-ts-mode)
                       command "accel-run" command-args ("dap")
                       :type "accel" :request "launch" :program dape-buffer-default :cwd dape-cwd))
  (add-to-list 'dape-configs
               '(accel-ranks modes (lua-mode lua-ts-mode)
                             command "accel-run" command-args ("dap")
                             :type "accel" :request "launch" :program dape-buffer-default :cwd dape-cwd :numProcesses 2))
  (add-to-list 'dape-configs
               '(accel-attach modes (lua-mode lua-ts-mode)
                              command "accel-run" command-args ("dap")
                              :type "accel" :request "attach")))
